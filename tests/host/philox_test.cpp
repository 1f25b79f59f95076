// host/philox_test.cpp: the Philox engine of kernels against published vectors and against torch's own engine. Prints what is wrong.
#include <ATen/core/PhiloxRNGEngine.h>
#include <backplane/philox.h>

#include <cstdio>
#include <vector>

namespace {

int failures = 0;

void expect_equal(const char* what, uint64_t found, uint64_t expected) {
  if (found == expected) return;
  ++failures;
  std::printf("%s: found %llx, expected %llx\n", what, static_cast<unsigned long long>(found), static_cast<unsigned long long>(expected));
}

// The known answers for philox4x32-10 that are distributed with the Random123 library.
void known_answers() {
  struct Vector {
    uint32_t counter[4], key[2], answer[4];
  };
  const Vector vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& v : vectors) {
    const auto found = backplane::philox4x32_10({{v.counter[0], v.counter[1], v.counter[2], v.counter[3]}}, v.key[0], v.key[1]);
    for (int i = 0; i < 4; ++i) expect_equal("known answer", found.word[i], v.answer[i]);
  }
}

// torch counts its offset in blocks of four numbers.
void same_as_torch() {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{67280421310721}, ~uint64_t{0}}) {
    for (const uint64_t stream : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
      for (const uint64_t block : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 2}) {
        at::Philox4_32 theirs(seed, stream, block);
        backplane::Philox ours(seed, block * 4, stream);
        for (int i = 0; i < 16; ++i) expect_equal("torch's engine", ours(), theirs());
      }
    }
  }
}

// 1000 numbers drawn in pieces of any size, by any number of workers, are the same numbers.
void independent_of_geometry() {
  std::vector<uint32_t> whole(1000);
  backplane::Philox one(42, 12);
  for (uint32_t& number : whole) number = one();
  for (const size_t piece : {1, 3, 4, 7, 256}) {
    for (size_t begin = 0; begin < whole.size(); begin += piece) {
      backplane::Philox worker(42, 12 + begin);
      for (size_t i = begin; i < whole.size() && i < begin + piece; ++i) expect_equal("a worker's number", worker(), whole[i]);
    }
  }
}

void state_reads_values_or_addresses() {
  backplane::PhiloxState values;
  values.seed = 3;
  values.offset = 8;
  expect_equal("seed", backplane::philox_range(values).seed, 3);
  expect_equal("offset", backplane::philox_range(values).offset, 8);
  const uint64_t seed = 9, offset = 100;
  backplane::PhiloxState addresses;
  addresses.seed_address = &seed;
  addresses.offset_address = &offset;
  addresses.graph_offset = 16;
  expect_equal("seed in a graph", backplane::philox_range(addresses).seed, 9);
  expect_equal("offset in a graph", backplane::philox_range(addresses).offset, 116);
}

void uniform_is_half_open() {
  expect_equal("smallest", backplane::philox_uniform(0) == 0.0f, 1);
  expect_equal("largest", backplane::philox_uniform(~0u) < 1.0f, 1);
  expect_equal("middle", backplane::philox_uniform(0x80000000u) == 0.5f, 1);
}

}  // namespace

int main() {
  known_answers();
  same_as_torch();
  independent_of_geometry();
  state_reads_values_or_addresses();
  uniform_is_half_open();
  return failures == 0 ? 0 : 1;
}
