/* compiler.h: the groups bp.compiler and bp.module, for any driver in C: compiler_driver.c shows how it takes them. */
#ifndef COMPILER_H
#define COMPILER_H

#include <backplane/driver/compiler.h>
#include <backplane/driver/module.h>

typedef int32_t (*fail_fn)(int32_t status, const char* why); /* keeps the text for last_error, returns the status */

typedef struct compiler { /* a member of the driver's instance: nothing is global */
  bp_compiler compiler;
  bp_module module;
  int32_t devices;
  fail_fn fail;
  char prelude[32768];
} compiler;

void compiler_init(compiler* me, int32_t devices, fail_fn keep);

/* The driver's query_ext. */
int32_t compiler_query(const compiler* me, const char* id, uint32_t version, const bp_ext** out);

#endif
