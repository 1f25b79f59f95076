// extend/generator.cpp: a generator of one's own: for a device whose kernels take their numbers in larger groups.
//
// Derive from PhiloxGenerator. Seed, offset, state and torch.Generator come with it; what changes is how a launch takes its range. Every
// generator on the device is then of this class: torch.Generator(device="..."), the default ones, and their clones.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> ranges_taken{0};

class AlignedGenerator : public backplane::PhiloxGenerator {
 public:
  using PhiloxGenerator::PhiloxGenerator;

  // The device draws 1024 numbers at once, so ranges are whole multiples of that.
  backplane::PhiloxState take(uint64_t count) override {
    ++ranges_taken;
    return PhiloxGenerator::take((count + 1023) / 1024 * 1024);
  }

 protected:
  // Without this, a clone would be a plain PhiloxGenerator.
  AlignedGenerator* clone_impl() const override {
    auto copy = c10::make_intrusive<AlignedGenerator>(device().index());
    copy->set_current_seed(current_seed());
    copy->set_offset(get_offset());
    return copy.release();
  }
};

const backplane::extend::Generator<AlignedGenerator> generator;

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("ranges_taken", [] { return ranges_taken.load(); });
}
