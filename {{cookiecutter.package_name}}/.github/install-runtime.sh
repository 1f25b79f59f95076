#!/usr/bin/env bash
# .github/install-runtime.sh: the one place where CI gets the vendor's runtime: headers, libraries, and what the loader needs to find them.
# Every job of ci.yml that builds or runs this project begins with it.
{%- if cookiecutter.driver == "opencl" %} The driver that the project starts with runs on PoCL there.
{%- elif cookiecutter.driver == "vulkan" %} The driver that the project starts with runs on Mesa's lavapipe there.
{%- elif cookiecutter.driver == "cuda" %} The driver that the project starts with needs a runner with a GPU, and
# NVIDIA's driver on it: in ci.yml, put its label in the place of `ubuntu-latest`.
{%- else %} The driver that the project starts with needs nothing.
{%- endif %}
set -euo pipefail
{% if cookiecutter.driver == "opencl" %}
sudo apt-get update
sudo apt-get install -y ocl-icd-libopencl1 pocl-opencl-icd
{% elif cookiecutter.driver == "vulkan" %}
sudo apt-get update
sudo apt-get install -y libvulkan1 mesa-vulkan-drivers
{% endif %}
# sudo apt-get install -y libvendor-dev
# echo "LD_LIBRARY_PATH=/opt/vendor/lib" >> "${GITHUB_ENV:?}"
