/* What own_format.py calls, in the manner of CMSIS-NN: images channels last, batches of one, a multiplier and a
   shift per channel. CMSIS-NN's own functions can stand in their place. */
#include <stdint.h>
#include <string.h>

typedef struct { int h, w, c; } dims;
typedef struct { int stride_h, stride_w, pad_h, pad_w, groups, zero_x, zero_y, low, high, twice; } params;

/* v * multiplier / 2^shift, rounded half up; twice as gemmlowp does, at 2^30 first */
static int32_t scaled(int64_t v, int32_t multiplier, int shift, int twice) {
  int64_t first = twice && shift > 31 ? (v >= 0 ? 1LL << 30 : -(1LL << 30)) : 0;
  return (int32_t)((v * multiplier + (1LL << (shift - 1)) + first) >> shift);
}

static int8_t cut(int32_t v, int low, int high) { return (int8_t)(v < low ? low : v > high ? high : v); }

static void convolve(params p, dims x, const int8_t *in, dims k, const int8_t *filter, const int32_t *bias,
                     const int32_t *multiplier, const int32_t *shift, dims y, int8_t *out) {
  for (int i = 0; i < y.h; i++) for (int j = 0; j < y.w; j++) for (int o = 0; o < y.c; o++) {
    int32_t sum = bias[o];
    for (int a = 0; a < k.h; a++) for (int b = 0; b < k.w; b++) {
      int row = i * p.stride_h - p.pad_h + a, column = j * p.stride_w - p.pad_w + b;
      if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
      for (int c = 0; c < k.c; c++) {
        int from = o / (y.c / p.groups) * k.c + c;
        sum += (in[(row * x.w + column) * x.c + from] - p.zero_x) * filter[((o * k.h + a) * k.w + b) * k.c + c];
      }
    }
    int32_t stored = scaled(sum, multiplier[o], shift[o], p.twice) + p.zero_y;
    out[(i * y.w + j) * y.c + o] = cut(stored, p.low, p.high);
  }
}

/* 20 bits below the last one until the sum is rounded; ma and mb are over twice the larger scale */
static void elementwise_add(params p, int size, const int8_t *a, int zero_a, int32_t ma, int sa, const int8_t *b,
                            int zero_b, int32_t mb, int sb, int32_t m, int s, int8_t *out) {
  for (int i = 0; i < size; i++) {
    int64_t left = scaled((int64_t)(a[i] - zero_a) * (1 << 20), ma, sa, p.twice);
    int64_t right = scaled((int64_t)(b[i] - zero_b) * (1 << 20), mb, sb, p.twice);
    out[i] = cut(scaled(left + right, m, s, p.twice) + p.zero_y, p.low, p.high);
  }
}

static void max_pool(params p, dims x, const int8_t *in, dims k, dims y, int8_t *out) {
  for (int i = 0; i < y.h; i++) for (int j = 0; j < y.w; j++) for (int c = 0; c < y.c; c++) {
    int most = -128;
    for (int a = 0; a < k.h; a++) for (int b = 0; b < k.w; b++) {
      int row = i * p.stride_h - p.pad_h + a, column = j * p.stride_w - p.pad_w + b;
      if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
      int v = in[(row * x.w + column) * x.c + c];
      most = v > most ? v : most;
    }
    out[(i * y.w + j) * y.c + c] = cut(most, p.low, p.high);
  }
}

static void mean(params p, dims x, const int8_t *in, int32_t m, int s, int8_t *out) {
  for (int c = 0; c < x.c; c++) {
    int32_t sum = 0;
    for (int i = 0; i < x.h * x.w; i++) sum += in[i * x.c + c] - p.zero_x;
    out[c] = cut(scaled(sum, m, s, p.twice) + p.zero_y, p.low, p.high);
  }
}

static void requantize(params p, int size, const int8_t *in, int32_t m, int s, int8_t *out) {
  for (int i = 0; i < size; i++) out[i] = cut(scaled(in[i] - p.zero_x, m, s, p.twice) + p.zero_y, p.low, p.high);
}

static void concatenate(int pixels, int size, const int8_t *in, int channels, int at, int8_t *out) {
  for (int i = 0; i < pixels; i++) memcpy(out + i * channels + at, in + i * size, size);
}
