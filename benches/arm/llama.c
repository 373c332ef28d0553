// One product of ggml as its CPU backend dispatches it, with repacked weights where it has them, for count.py to follow:
// llama DTYPE TOKENS ROWS INPUTS. Prints where `begin` lies.
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void begin(void) { __asm__ volatile("nop" ::: "memory"); }
__attribute__((noinline)) void end(void) { __asm__ volatile("nop; nop" ::: "memory"); }

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: llama DTYPE TOKENS ROWS INPUTS\n");
        return 2;
    }
    enum ggml_type type = GGML_TYPE_COUNT;
    for (int i = 0; i < GGML_TYPE_COUNT; i++)
        if (ggml_type_name(i) && strcmp(ggml_type_name(i), argv[1]) == 0) type = i;
    const int64_t tokens = atoll(argv[2]), rows = atoll(argv[3]), inputs = atoll(argv[4]);
    if (type == GGML_TYPE_COUNT) return 2;

    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    ggml_backend_dev_get_extra_bufts_t extra =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");

    struct ggml_init_params params = {ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true};
    struct ggml_context *of_weight = ggml_init(params), *of_rest = ggml_init(params);
    struct ggml_tensor *weight = ggml_new_tensor_2d(of_weight, type, inputs, rows);
    struct ggml_tensor *x = ggml_new_tensor_2d(of_rest, GGML_TYPE_F32, inputs, tokens);
    struct ggml_tensor *y = ggml_mul_mat(of_rest, weight, x);

    // The first kind of memory next to the plain one in which the backend multiplies this weight.
    ggml_backend_buffer_t buffer = NULL;
    for (ggml_backend_buffer_type_t *t = extra(device); t && *t && !buffer; t++) {
        buffer = ggml_backend_alloc_ctx_tensors_from_buft(of_weight, *t);
        if (buffer && !ggml_backend_dev_supports_op(device, y)) {
            ggml_backend_buffer_free(buffer);
            weight->buffer = NULL;
            weight->data = NULL;
            weight->extra = NULL;
            buffer = NULL;
        }
    }
    const char *kind = buffer && weight->extra ? "repacked" : "plain";
    if (buffer && !weight->extra) {
        ggml_backend_buffer_free(buffer);
        weight->buffer = NULL;
        weight->data = NULL;
        buffer = NULL;
    }
    if (!buffer) buffer = ggml_backend_alloc_ctx_tensors(of_weight, backend);
    ggml_backend_alloc_ctx_tensors(of_rest, backend);
    char *bytes = malloc(ggml_nbytes(weight));
    memset(bytes, 0x35, ggml_nbytes(weight));
    ggml_backend_tensor_set(weight, bytes, 0, ggml_nbytes(weight));
    for (int64_t i = 0; i < inputs * tokens; i++) ((float *)x->data)[i] = (float)(i % 251) - 125;

    struct ggml_cgraph *graph = ggml_new_graph(of_rest);
    ggml_build_forward_expand(graph, y);
    ggml_backend_graph_compute(backend, graph);
    printf("%p %s\n", (void *)begin, kind);
    fflush(stdout);
    begin();
    ggml_backend_graph_compute(backend, graph);
    end();
    return 0;
}
