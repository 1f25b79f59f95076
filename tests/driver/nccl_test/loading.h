// tests/driver/nccl_test/loading.h: cases of nccl_test.cpp: without NCCL, and what its versions have.
#pragma once

#include <cstdlib>
#include <utility>

#include "support.h"

namespace {

void absent() {
  const auto reports = [](const std::string& nccl_option, const char* why) {
    const bp_driver* driver = get(entry(), over_the_fake("nccl=" + nccl_option).c_str());
    CHECK(driver && !collective_of(driver));
    HAS(last_error_text(*driver), "bp.collective: ");
    HAS(last_error_text(*driver), why);
    const bp_ext* other = nullptr;  // the other groups are there
    OK(driver->query_ext(driver->self, BP_VMM_ID, BP_VMM_VERSION, &other));
    OK(driver->close(driver->self));
  };
  reports("off", "nccl=off");
  reports("/no/such/libnccl.so.2", "Looked for: /no/such/libnccl.so.2 (");
  reports("libc.so.6", "it has no ncclGetVersion");
  setenv("FAKE_NCCL_VERSION", "21210", 1);
  reports(nccl_path, "version 21210 is too old: 2.14 or newer is needed");
  unsetenv("FAKE_NCCL_VERSION");
}

void versions() {
  const auto flags = [](const char* version) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    Ranks r;
    unsetenv("FAKE_NCCL_VERSION");
    bp_comm* comm = r.join();
    bp_comm* part = nullptr;
    const bp_comm_config config = r.config(0, 1);
    const int32_t split = r.g.split(r.g.head.self, comm, 0, &config, &part);
    CHECK(split == (r.g.head.flags & BP_COLLECTIVE_SPLIT ? BP_OK : BP_UNSUPPORTED));
    bp_collective_properties properties{};
    properties.struct_size = sizeof properties;
    OK(r.g.properties(r.g.head.self, 0, &properties));
    CHECK(properties.id_bytes == 128);
    return std::pair(r.g.head.flags & BP_COLLECTIVE_SPLIT, (properties.reduces[BP_REDUCE_SUM] & BP_DTYPE_FLOAT8_E4M3) != 0);
  };
  CHECK(flags("21405") == std::pair(0u, false));
  CHECK(flags("21805") == std::pair(BP_COLLECTIVE_SPLIT, false));
  CHECK(flags("22304") == std::pair(BP_COLLECTIVE_SPLIT, false));
  CHECK(flags("22403") == std::pair(BP_COLLECTIVE_SPLIT, true));
  setenv("FAKE_CUDA_CAPABILITY", "80", 1);  // a GPU that reduces no float8
  CHECK(!flags("22403").second);
  unsetenv("FAKE_CUDA_CAPABILITY");
}

// The name is in the config from the version on that reads it.
void configs() {
  for (const auto& [version, line] :
       {std::pair("22605", "ncclCommInitRankConfig 0 of 1, -\n"), std::pair("22703", "ncclCommInitRankConfig 0 of 1, the test's\n")}) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    Ranks r;
    unsetenv("FAKE_NCCL_VERSION");
    nccl().record();
    r.join();
    SAME(calls(), std::string("ncclGetUniqueId\n") + line);
  }
}

}  // namespace
