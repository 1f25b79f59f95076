/* backplane/driver/peer.h: group "bp.peer" version 1: direct access between devices of one instance. */
#pragma once

#include "../driver.h"

#define BP_PEER_ID "bp.peer"
#define BP_PEER_VERSION 1u

typedef struct bp_peer {
  bp_ext head;

  /* *out = 1 if work on `device` can read and write memory of `peer`. Creates no context. errors: INVALID_DEVICE. */
  int32_t (*can_access)(void* self, int32_t device, int32_t peer, int32_t* out);

  /* Enables access, until close; repeating is a no-op. errors: UNSUPPORTED if can_access returns 0. */
  int32_t (*enable)(void* self, int32_t device, int32_t peer);
} bp_peer;

#define BP_PEER_SLOTS(X) X(can_access) X(enable)
