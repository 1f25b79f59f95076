// memory/block_index.cpp: the hash table behind BlockIndex; see Note [Lock-free lookup].
#include "memory/block_index.h"

namespace backplane::memory {
namespace {

// Exists, under the lock, while chains are changed.
class Change {
 public:
  explicit Change(std::atomic<uint64_t>& changes) : changes_(changes) { changes_.fetch_add(1, std::memory_order_acq_rel); }
  ~Change() { changes_.fetch_add(1, std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<uint64_t>& changes_;
};

}  // namespace

BlockIndex& BlockIndex::instance() {
  static auto* index = new BlockIndex();
  return *index;
}

BlockIndex::BlockIndex() {
  tables_.push_back(std::make_unique<Table>(size_t{1} << 12));
  table_.store(tables_.back().get(), std::memory_order_release);
}

Block* BlockIndex::find_slow(uint64_t address) const {
  if (address < lowest_.load(std::memory_order_relaxed) || address > highest_.load(std::memory_order_relaxed)) return nullptr;
  constexpr int kTries = 4;
  constexpr int kLongChain = 64;  // a reader that relinking leads into another chain gives up here
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = changes_.load(std::memory_order_acquire);
    Block* block = table_.load(std::memory_order_acquire)->bucket(address).load(std::memory_order_acquire);
    int length = 0;
    for (; block != nullptr && length < kLongChain; ++length) {
      if (block->address.load(std::memory_order_acquire) == address) return block;
      block = block->index_next.load(std::memory_order_acquire);
    }
    // The loads above acquire: if one of them saw a part of a change, this one sees the change's beginning.
    if (block == nullptr && before % 2 == 0 && changes_.load(std::memory_order_relaxed) == before) return nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return find_locked(address);
}

Block* BlockIndex::find_locked(uint64_t address) const {
  Block* block = table_.load(std::memory_order_relaxed)->bucket(address).load(std::memory_order_relaxed);
  while (block != nullptr && block->address.load(std::memory_order_relaxed) != address) {
    block = block->index_next.load(std::memory_order_relaxed);
  }
  return block;
}

void BlockIndex::link(Table& table, Block* block) {
  auto& head = table.bucket(block->address.load(std::memory_order_relaxed));
  block->index_next.store(head.load(std::memory_order_relaxed), std::memory_order_release);
  head.store(block, std::memory_order_release);
}

void BlockIndex::grow() {
  tables_.push_back(std::make_unique<Table>((tables_.back()->mask + 1) * 2));
  for (Block& block : blocks_) {
    if (block.address.load(std::memory_order_relaxed) != 0) link(*tables_.back(), &block);
  }
  table_.store(tables_.back().get(), std::memory_order_release);
}

Block* BlockIndex::create(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (address < lowest_.load(std::memory_order_relaxed)) lowest_.store(address, std::memory_order_relaxed);
  if (address > highest_.load(std::memory_order_relaxed)) highest_.store(address, std::memory_order_relaxed);
  const Change change(changes_);
  if (live_ >= tables_.back()->mask) grow();
  ++live_;
  Block* block = nullptr;
  if (spare_.empty()) {
    block = &blocks_.emplace_back();
  } else {
    block = spare_.back();
    spare_.pop_back();
  }
  block->address.store(address, std::memory_order_release);
  link(*tables_.back(), block);
  return block;
}

void BlockIndex::remove(Block* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Change change(changes_);
  std::atomic<Block*>* place = &tables_.back()->bucket(block->address.load(std::memory_order_relaxed));
  while (place->load(std::memory_order_relaxed) != block) place = &place->load(std::memory_order_relaxed)->index_next;
  place->store(block->index_next.load(std::memory_order_relaxed), std::memory_order_release);
  block->address.store(0, std::memory_order_release);
  block->state = BlockState::spare;
  block->segment = nullptr;
  block->previous = block->next = block->next_recent = nullptr;
  spare_.push_back(block);
  --live_;
}

}  // namespace backplane::memory
