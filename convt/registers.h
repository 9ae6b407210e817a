/* Vectors of a type: loads, stores and what is shuffled among registers. Included by micro.h and pieces.h behind
   micro_common.h and inside a target region, once for each of their instances, with REAL, LANES and NAME as there. */

typedef REAL NAME(vector) __attribute__((vector_size(LANES * sizeof(REAL))));
typedef REAL NAME(unaligned) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef __typeof__((NAME(vector)){0} < (NAME(vector)){0}) NAME(mask);

/* Once for a source: they expand by the REAL, LANES and NAME of where they are used. */
#ifndef CONVT_REGISTERS
#define CONVT_REGISTERS
#define VECTOR NAME(vector)
#define LOAD(pointer) ((VECTOR) * (const NAME(unaligned) *)(pointer))
#define STORE(pointer, value) (*(NAME(unaligned) *)(pointer) = (value))
#define ON_VECTOR(pointer) ((uintptr_t)(pointer) % (LANES * sizeof(REAL)) == 0)

/* Shuffles by indices of each lane. */
#define SHUFFLE(a, b, index, v) __builtin_shufflevector(a, b, EACH_LANE(LANES)(index, v))
#define EACH_LANE(lanes) EACH_OF(lanes)
#define EACH_OF(lanes) EACH_OF_##lanes
#define EACH_OF_2(index, v) index(v, 0), index(v, 1)
#define EACH_OF_4(index, v) EACH_OF_2(index, v), index(v, 2), index(v, 3)
#define EACH_OF_8(index, v) EACH_OF_4(index, v), index(v, 4), index(v, 5), index(v, 6), index(v, 7)
#define EACH_OF_16(index, v)                                                                                           \
    EACH_OF_8(index, v), index(v, 8), index(v, 9), index(v, 10), index(v, 11), index(v, 12), index(v, 13),             \
        index(v, 14), index(v, 15)
/* Vector v of a0 b0 a1 b1 ... */
#define OF_TWO(v, lane) (((v) * LANES + (lane)) / 2 + (lane) % 2 * LANES)
/* Of a0 b0 a1 b1 ... a0 a1 ... for v = 0, b0 b1 ... for v = 1. */
#define EVERY_SECOND(v, lane) (2 * (lane) + (v))
/* Vector v of a0 b0 c0 a1 ..., first without c, then with it. */
#define OF_THREE(v, lane) (((v) * LANES + (lane)) / 3)
#define PLACE_OF_THREE(v, lane) (((v) * LANES + (lane)) % 3)
#define FIRST_TWO(v, lane) (OF_THREE(v, lane) + PLACE_OF_THREE(v, lane) % 2 * LANES)
#define THIRD(v, lane) (PLACE_OF_THREE(v, lane) == 2 ? LANES + OF_THREE(v, lane) : (lane))
/* The first v of every 8. */
#define CLOSED_UP(v, lane) ((lane) < (v) ? (lane) : (lane) < 2 * (v) ? (lane) - (v) + 8 : 0)
#endif

/* Vectors, as many as places, a power of two or three times one: cells after each other. Interleaving the halves of the
   list log2(places) times does it, or the halves first and then the thirds; LANES of them are transposed so. */
INLINE void NAME(interleave_registers)(const int places, VECTOR *block)
{
    VECTOR next[LANES > 8 ? LANES : 8];
    const int third = places % 3 ? 0 : places / 3, many = third ? third : places;
    UNROLL
    for (int stage = 1; stage < many; stage *= 2) {
        UNROLLED (i, places / 2) {
            next[2 * i] = SHUFFLE(block[i], block[i + places / 2], OF_TWO, 0);
            next[2 * i + 1] = SHUFFLE(block[i], block[i + places / 2], OF_TWO, 1);
        }
        UNROLLED (i, places)
            block[i] = next[i];
    }
    UNROLLED (i, third) {
        const VECTOR a = block[i], b = block[i + third], c = block[i + 2 * third];
        next[3 * i] = SHUFFLE(SHUFFLE(a, b, FIRST_TWO, 0), c, THIRD, 0);
        next[3 * i + 1] = SHUFFLE(SHUFFLE(a, b, FIRST_TWO, 1), c, THIRD, 1);
        next[3 * i + 2] = SHUFFLE(SHUFFLE(a, b, FIRST_TWO, 2), c, THIRD, 2);
    }
    UNROLLED (i, 3 * third)
        block[i] = next[i];
}

INLINE void NAME(transpose_registers)(VECTOR *block)
{
    NAME(interleave_registers)(LANES, block);
}

/* Which lanes are the first n. */
INLINE NAME(mask) NAME(first_lanes)(int n)
{
    NAME(mask) lane;
    UNROLLED (i, LANES)
        lane[i] = i;
    return lane < n;
}
