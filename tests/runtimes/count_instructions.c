/* A plugin of qemu 7 and 8 that counts the instructions of a program and prints their number at its end.

   The declarations are those of qemu-plugin.h, version 1, which Debian's packages do not contain. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb; /* a block of translated instructions */

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*callback)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation, void *number, uint64_t by);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*callback)(plugin_id, void *), void *data);

EXPORT int qemu_plugin_version = 1;

static const int ADD = 0;
static uint64_t count;

static void count_block(plugin_id id, struct qemu_plugin_tb *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &count, qemu_plugin_tb_n_insns(block));
}

static void print_count(plugin_id id, void *data) {
  (void)id, (void)data;
  fprintf(stderr, "instructions %" PRIu64 "\n", count);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *information, int argc, char **argv) {
  (void)information, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
  qemu_plugin_register_atexit_cb(id, print_count, NULL);
  return 0;
}
