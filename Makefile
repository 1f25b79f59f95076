# Makefile: the chores of this repository, by the words that CONTRIBUTING.md and CI use. They need Python 3.10 or newer, a C++20 compiler and
# make; everything else comes from pip into .venv. Repeated, each does only what has changed.
#
# TORCH and PIP_FLAGS say which torch is installed and from where:  make demo TORCH=torch==2.13.0+cpu PIP_FLAGS="..."
# A torch that was asked for stays until another is.
PYTHON ?= python3
TORCH ?= $(or $(shell cat .venv/.torch 2> /dev/null),torch==2.13.0)
# A number alone is that version.
TORCH_NEEDED = $(if $(filter 0% 1% 2% 3% 4% 5% 6% 7% 8% 9%,$(TORCH)),torch==$(TORCH),$(TORCH))
PIP_FLAGS ?=
ARGS ?=

BIN := $(CURDIR)/.venv/bin
DEMO := build/demo
SAMPLE ?=
# A test process that runs a model or a compiler takes up to 3 GiB.
JOBS ?= $(shell awk -v n="$$(nproc)" '/MemAvailable/ {m = int($$2 / 3145728); print (m < 1 ? 1 : m < n ? m : n)}' /proc/meminfo)

export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv

VENV_READY := .venv/.ready-$(shell printf '%s' '$(TORCH_NEEDED)' | tr -c 'A-Za-z0-9.' _)
TEMPLATE := cookiecutter.json $(shell find hooks '{{cookiecutter.package_name}}' -type f -not -path '*/__pycache__/*')
CPP := $(shell find include backend drivers check_driver examples tests '{{cookiecutter.package_name}}/backend/kernels' -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp')

# Shows what a command printed only if it fails.
quietly = mkdir -p build && { $(1) > build/$@.log 2>&1 || { cat build/$@.log; exit 1; }; }

.PHONY: help demo test test-all test-torch test-torch-all test-triton test-triton-drivers test-opencl-intel test-ecosystem test-vllm cross conformance asan tsan ubsan fuzz fuzz-triton soak gpu-check lint format docs bench dev venv minimal opencl vulkan dist clean
help:
	@echo "make demo         build a backend from the template, install it in .venv and train on it"
	@echo "make test         the test suite (ARGS=... goes to pytest; SAMPLE=1/4: also an eighth of the long tests, and a quarter of those on other kinds of device)"
	@echo "make test-all     the whole test suite on every kind of device"
	@echo "make test-torch TORCH=torch==2.15.0  what another torch may break, in an environment of its own"
	@echo "make test-torch-all  the same for every version of torch that the SDK is written for, with a table"
	@echo "make cross        Linux on aarch64: the backend by a cross compiler, the drivers' tests under QEMU"
	@echo "make conformance  every operator, module and optimizer of PyTorch on the simulated device (ARGS=... goes to the command)"
	@echo "make asan, ubsan, tsan  the drivers, the core and a part of the Python tests under a sanitizer"
	@echo "make fuzz         random programs, device against CPU (ARGS=\"--programs 10000 --seed 1 --kinds all\"; ARGS=--compiled: under torch.compile); hostile options and files"
	@echo "make fuzz-triton  random kernels, device against Triton's interpreter (ARGS=\"--programs 1000 --seed 1\")"
	@echo "make soak         random work with everything checked, 5 minutes (ARGS=\"--seconds 60 --seed 7\")"
	@echo "make gpu-check    all that needs an NVIDIA GPU, on the machine's own Python and CUDA torch (ARGS=\"--part build\" and so on)"
	@echo "make lint         ruff, mypy, clang-format, the rules of the kernel dialect, include rules"
	@echo "make format       rewrite the files as lint wants them"
	@echo "make docs         the documents as a site, in build/site"
	@echo "make test-triton  Triton kernels on the simulated device, by the Triton of TRITON=$(TRITON); test-triton-drivers: on PoCL and lavapipe"
	@echo "make test-opencl-intel  the OpenCL driver on Intel's runtime of the processor, by OpenCL C and by SPIR-V"
	@echo "make test-ecosystem  libraries of the package index on the device, in an environment of its own; writes the table of docs/ecosystem.md"
	@echo "make test-vllm    vLLM on the device, in an environment of its own; writes the table of docs/ecosystem.md"
	@echo "make bench        measure the device against the CPU (ARGS=... goes to the benchmark)"
	@echo "make dev          after editing C or C++: compile what changed, into the installed backend"
	@echo "make dist         the sdist and the wheel, into dist/: the same commit gives the same bytes"
	@echo "make clean        remove build/ (the environment in .venv stays)"

demo: dev minimal
	python -m mydevice
	python examples/demo/demo.py $(ARGS)

# All parts run, and a summary stands at the end: tests/run.py says which parts there are.
test: dev minimal opencl vulkan
	python tests/run.py --jobs $(JOBS) $(if $(SAMPLE),--sample $(SAMPLE)) $(ARGS)

test-all: dev minimal opencl vulkan
	python tests/run.py --jobs $(JOBS) --all

# What another torch may break: in a checkout below build/, whose environment and build have that torch. Of what git does not know nothing is there.
OTHER := build/torch/$(subst torch==,,$(TORCH_NEEDED))$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
test-torch:
	git worktree prune
	test -e '$(OTHER)' || git worktree add --detach '$(OTHER)'
	git status --porcelain > /dev/null  # git stash create fails of a file that was written anew and is the same, unless the index knows
	state=$$(git stash create) && git -C '$(OTHER)' checkout --quiet --force --detach "$${state:-$$(git rev-parse HEAD)}"
	env -u VIRTUAL_ENV PATH='$(subst $(BIN):,,$(PATH))' $(MAKE) -C '$(OTHER)' test TORCH='$(TORCH_NEEDED)' ARGS=--smoke

# Each version that the SDK is written for, in its newest release. On a machine without a GPU, too: but a CUDA build takes 8 GB.
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
test-torch-all: venv
	python tests/torches.py $(TORCHES)

# Linux on aarch64: Debian's g++-aarch64-linux-gnu compiles and qemu-user runs; torch's wheel for it has the headers and libraries.
CROSS := build/cross/aarch64
cross: $(CROSS)/.ready
	CROSS=all python -m pytest tests/driver/test_aarch64.py tests/host/test_cross_build.py $(ARGS)

$(CROSS)/.ready: | $(VENV_READY)
	mkdir -p $(CROSS)
	python -m pip download $(PIP_FLAGS) --only-binary=:all: --no-deps --dest $(CROSS) --platform manylinux_2_28_aarch64 '$(firstword $(subst +, ,$(TORCH_NEEDED)))'
	cd $(CROSS) && python -m zipfile -e torch-*.whl . && rm torch-*.whl
	touch $@

# What the simulated device may fail is what the generated project's list says.
conformance: dev
	torch-backplane conformance --expected $(DEMO)/mydevice/conformance.toml \
	  --json build/conformance.json --html build/conformance.html $(ARGS)

# The drivers, the stream engine and the shims: every case of engine_test.cpp and fault_test.cpp; then the core (CONTRIBUTING.md).
asan: dev
	python -m pytest tests/driver/test_engine.py -k address $(ARGS)
	python tests/sanitizers/run.py address

ubsan: asan

tsan: dev
	python -m pytest tests/driver/test_engine.py -k thread $(ARGS)
	python tests/sanitizers/run.py thread

# New cases each time; the test suite tries a few hundred. ARGS go to the programs.
fuzz: dev minimal
	FUZZ_EXAMPLES=5000 python -m pytest tests/driver/test_fuzz.py tests/extend/test_fuzz_metadata.py
	OMP_NUM_THREADS=1 PYTHONPATH=tests python -m fuzz $(ARGS)

soak: dev
	OMP_NUM_THREADS=1 python tests/soak.py $(ARGS)

# The machine's own Python, not the one in .venv; nothing is installed.
gpu-check:
	env -u VIRTUAL_ENV PATH='$(subst $(BIN):,,$(PATH))' $(PYTHON) tests/gpu_check.py $(ARGS)

lint: venv
	ruff check .
	ruff format --check .
	mypy
	torch-backplane lint-kernels backend examples
	@clang-format --dry-run -Werror $(CPP)
	python tests/host/test_includes.py

format: venv
	ruff check --fix .
	ruff format .
	clang-format -i $(CPP)
	cp .clang-format '{{cookiecutter.package_name}}/'
	cp examples/minimal_driver/minimal_driver.c* '{{cookiecutter.package_name}}/backend/driver/'

# An environment of its own: nothing of it is needed for anything else. Warnings, such as a dead link or anchor, are errors.
DOCS_ENV := build/docs-env
docs: $(DOCS_ENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS_ENV)/bin/python -m mkdocs build --strict --clean
	@echo "build/site/index.html"

$(DOCS_ENV)/.ready: requirements-docs.txt
	test -x $(DOCS_ENV)/bin/python || $(PYTHON) -m venv $(DOCS_ENV)
	$(DOCS_ENV)/bin/python -m pip install -q -r requirements-docs.txt
	touch $@

# A Triton beside the environment, which works as well without it. SAMPLE=1/3: of the tests on other kinds of group a third, others at each commit.
TRITON ?= 3.7.1
test-triton: dev build/triton/$(TRITON)/.ready
	@sample=; for options in items=1 items=64 items=8,order=down languages=dialect+ttir; do \
	  echo "==== $$options $$sample"; \
	  OMP_NUM_THREADS=1 TRITON_CACHE_DIR=build/triton/cache PYTHONPATH=build/triton/$(TRITON) MYDEVICE_OPTIONS=$$options \
	    python -m pytest -n $(JOBS) --dist loadgroup tests/triton_kernels $$sample $(ARGS) || exit 1; \
	  $(if $(SAMPLE),sample="--sample $(SAMPLE):$$(git rev-parse --short=12 HEAD)";) \
	done

# The language on PoCL and lavapipe, which the system has.
test-triton-drivers: dev opencl vulkan build/triton/$(TRITON)/.ready
	@for kind in "opencl items=1" "opencl items=64" "vulkan device_type=cpu"; do \
	  echo "==== $$kind"; set -- $$kind; \
	  TRITON_CACHE_DIR=build/triton/cache PYTHONPATH=build/triton/$(TRITON) \
	    MYDEVICE_DRIVER=$(abspath $(DEMO))/$$1/lib$$1_driver.so MYDEVICE_OPTIONS=$$2 \
	    python -m pytest -n $(JOBS) --dist loadgroup tests/triton_kernels/test_language.py \
	    $(if $(SAMPLE),--sample "$(SAMPLE):$$(git rev-parse --short=12 HEAD)") $(ARGS) || exit 1; \
	done

# A second implementation of OpenCL, of the processor too, and one that takes SPIR-V.
INTEL := build/intel-opencl
test-opencl-intel: dev opencl $(INTEL)/intel.icd
	OPENCL_INTEL=1 OCL_ICD_VENDORS=$(abspath $(INTEL)) LD_LIBRARY_PATH=$(abspath $(INTEL))/lib MYDEVICE_KERNELS=strict \
	  python -m pytest -n $(JOBS) --dist loadgroup tests/driver/test_opencl_intel.py tests/portable/test_sdk_drivers.py $(ARGS)

$(INTEL)/intel.icd: $(VENV_READY)
	python -m pip install -q $(PIP_FLAGS) --prefix $(INTEL) intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
	echo '$(abspath $(INTEL))/lib/libintelocl.so' > $@

# Another seed each time.
fuzz-triton: dev build/triton/$(TRITON)/.ready
	OMP_NUM_THREADS=1 MYDEVICE_KERNELS=strict TRITON_CACHE_DIR=build/triton/cache PYTHONPATH=build/triton/$(TRITON):tests/triton_kernels \
	  python -m random_kernels $(ARGS) --options items=1 items=64 items=8,order=down

build/triton/$(TRITON)/.ready: $(VENV_READY)
	python -m pip install -q $(PIP_FLAGS) --no-deps --target $(@D) triton==$(TRITON)
	touch $@

# Libraries beside the environment of .venv, which they see and do not change: torch stays the one that is there.
ECOSYSTEM_ENV := build/ecosystem-env
test-ecosystem: dev $(ECOSYSTEM_ENV)/.ready
	env -u VIRTUAL_ENV PYTHONPATH=tests $(ECOSYSTEM_ENV)/bin/python -m pytest -p ecosystem_results --results docs/ecosystem.json tests/ecosystem $(ARGS)
	python docs/site/ecosystem.py

# Some libraries name releases of torch, Triton, NumPy or huggingface_hub that need not be those that are there.
$(ECOSYSTEM_ENV)/.ready: $(wildcard examples/lora/requirements.txt tests/ecosystem/requirements*.txt) tests/ecosystem/without_cuda.py $(VENV_READY)
	test -x $(ECOSYSTEM_ENV)/bin/python || python -m venv $(ECOSYSTEM_ENV)
	python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' > "$$($(ECOSYSTEM_ENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/backplane-venv.pth"
	python -c 'import torch; print("torch==" + torch.__version__.split("+")[0])' > $(ECOSYSTEM_ENV)/constraints.txt
	$(ECOSYSTEM_ENV)/bin/python -m pip install -q $(PIP_FLAGS) -c $(ECOSYSTEM_ENV)/constraints.txt $(foreach file,$(wildcard examples/lora/requirements.txt tests/ecosystem/requirements.txt),-r $(file))
	$(ECOSYSTEM_ENV)/bin/python -m pip install -q $(PIP_FLAGS) --no-deps triton==$(TRITON) -r tests/ecosystem/requirements-alone.txt
	$(ECOSYSTEM_ENV)/bin/python tests/ecosystem/without_cuda.py
	touch $@

# vLLM needs an older Transformers, with which the integration is tried as well. Its wheel is built without kernels: those are CUDA's.
VLLM_ENV := build/vllm-env
test-vllm: dev $(VLLM_ENV)/.ready
	env -u VIRTUAL_ENV PYTHONPATH=tests $(VLLM_ENV)/bin/python -m pytest -p ecosystem_results --results docs/ecosystem.json tests/serving $(ARGS)
	env -u VIRTUAL_ENV PYTHONPATH=tests $(VLLM_ENV)/bin/python -m pytest -p ecosystem_results tests/ecosystem/test_transformers.py -m sample
	python docs/site/ecosystem.py

$(VLLM_ENV)/.ready: pyproject.toml tests/ecosystem/without_cuda.py $(VENV_READY)
	test -x $(VLLM_ENV)/bin/python || python -m venv $(VLLM_ENV)
	python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' > "$$($(VLLM_ENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/backplane-venv.pth"
	$(VLLM_ENV)/bin/python -m pip install -q $(PIP_FLAGS) setuptools setuptools_scm setuptools-rust cmake ninja packaging wheel jinja2 grpcio-tools
	VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.32.0 $(VLLM_ENV)/bin/python -m pip install -q $(PIP_FLAGS) --no-build-isolation --no-binary vllm \
	  vllm==0.32.0 torch==2.13.0 torchvision==0.28.0 triton==3.7.1 numba==0.65.0 peft==0.21.2 trl==1.16.0
	$(VLLM_ENV)/bin/python tests/ecosystem/without_cuda.py
	touch $@

bench: dev
	python -m benchmarks $(ARGS)

# The demo's backend, up to date with the sources of the SDK.
dev: $(DEMO)/.installed
	@$(call quietly,CMAKE_INSTALL_ALWAYS=1 cmake --build $(DEMO)/mydevice/build --target install)

venv: $(VENV_READY)

$(VENV_READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed: make PYTHON=...")'
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	python -m pip install $(PIP_FLAGS) '$(TORCH_NEEDED)' -r requirements-dev.txt
	python -m pip install $(PIP_FLAGS) --no-build-isolation --no-deps -e .
	$(if $(filter file,$(origin TORCH)),,echo '$(TORCH_NEEDED)' > .venv/.torch)
	rm -f .venv/.ready-*
	touch $@

$(DEMO)/.rendered: $(TEMPLATE) | $(VENV_READY)
	mkdir -p $(DEMO)/mydevice
	find $(DEMO)/mydevice -mindepth 1 -maxdepth 1 -not -name build -exec rm -r {} +
	torch-backplane new --no-input --overwrite --output-dir $(DEMO) backplane_requirement="$(CURDIR)"
	touch $@

$(DEMO)/.installed: $(DEMO)/.rendered $(VENV_READY)
	python -m pip install $(PIP_FLAGS) --no-build-isolation --no-deps -e $(DEMO)/mydevice
	touch $@

# The driver that a vendor writes first, by itself.
minimal: $(VENV_READY)
	@$(call quietly,cmake -S examples/minimal_driver -B $(DEMO)/minimal -G Ninja -Dbackplane_ROOT="$(CURDIR)")
	@$(call quietly,cmake --build $(DEMO)/minimal)

# The OpenCL and Vulkan drivers by themselves, for the device tests on PoCL and lavapipe.
OPENCL := $(DEMO)/opencl/libopencl_driver.so
VULKAN := $(DEMO)/vulkan/libvulkan_driver.so
opencl: $(OPENCL)
vulkan: $(VULKAN)
$(OPENCL) $(VULKAN): $(DEMO)/%_driver.so: $(shell find drivers/opencl drivers/vulkan drivers/spirv drivers/engine include/backplane/driver include/backplane/driver.h -type f)
	@mkdir -p $(@D)
	printf '#include "%s"\n' $(abspath $(wildcard drivers/$(notdir $(@D))/*.cpp drivers/spirv/*.cpp)) | \
	  $(CXX) -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -I include -x c++ - -o $@ -lpthread -ldl

# What is uploaded: the sdist, and the wheel that is made from it.
dist: venv
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) python -m build --no-isolation --outdir dist .
	twine check --strict dist/*

clean:
	rm -rf build
