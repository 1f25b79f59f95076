// runtime/reports.h: errors that a kernel finds in its operands while it runs, such as an index that is out of range. The user's next wait
// raises them: for a stream, the device, or a copy to the host. Where the host reads device memory in place, the launch itself raises what
// has been reported so far.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <string_view>

namespace backplane {

// The address of the device's record, in device memory: three 64-bit words that a kernel on the current stream fills (bp_report of the
// dialect). The stream's next wait reads it. Any thread.
uint64_t report_record(c10::DeviceIndex device);

// The number that identifies an operator in the record, or a dimension of its operand (from 0 on), where torch reports the dimension and
// not the name. The name must live to the end of the process. Any thread.
uint64_t report_site(const char* op);
uint64_t report_site(int64_t dim);
// For an assertion, whose kernel reports the bound BP_FAILED: a RuntimeError with this text. 0 after a thousand texts. Any thread.
uint64_t report_text(std::string_view text);

// For a graph, whose kernels fill the record in each run, on any stream: that stream's next wait reads it.
void expect_reports(const c10::Stream& stream);

// Throws c10::IndexError, for a dimension or a division by 0 c10::Error, for what was reported, and clears the record. For callers that
// have waited for the stream, or for the whole device.
void raise_reports(const c10::Stream& stream);
void raise_reports(c10::DeviceIndex device);

// As above, without a wait, where that requires no copy.
void raise_visible_reports(c10::DeviceIndex device);

}  // namespace backplane
