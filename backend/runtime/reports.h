// runtime/reports.h: what a kernel finds wrong with its operands while it runs, such as an index that is out of range. It is raised by the
// next wait of a user: for a stream, the device, or a copy to the host. Where the host reads device memory in place, the launch itself
// raises what is there already.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace backplane {

// The address of the device's record, in device memory: three words of 64 bits that a kernel on the current stream fills (bp_report of the
// dialect). The stream's next wait asks for it. Any thread.
uint64_t report_record(c10::DeviceIndex device);

// The number by which an operator names itself in the record, or a dimension of its operand (from 0 on), where torch tells that and not the
// name. The name lives on. Any thread.
uint64_t report_site(const char* op);
uint64_t report_site(int64_t dim);

// For a graph, whose kernels fill the record in each run, on whatever stream that is: that stream's next wait asks.
void expect_reports(const c10::Stream& stream);

// Throws c10::IndexError, for a dimension or a division by 0 c10::Error, for what was reported, which is forgotten then. For whoever has
// waited for the stream, or for all of the device.
void raise_reports(const c10::Stream& stream);
void raise_reports(c10::DeviceIndex device);

// The same without a wait, where that takes no copy.
void raise_visible_reports(c10::DeviceIndex device);

}  // namespace backplane
