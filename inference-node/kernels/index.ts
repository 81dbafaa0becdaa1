/**
 * The picture worker's arithmetic that is done for every pixel, in AssemblyScript: compiled to
 * WebAssembly with 128-bit vectors it takes a fifth of the time of the same loops in JavaScript. A
 * kernel knows only addresses and numbers; ../serving/picture/ owns the memory and decides what lies
 * where. Compiled by `make generate` to ../serving/picture/kernels/kernels.wasm, which is committed.
 *
 * Kernels compute with vectors of four floats: red, green, blue and one more.
 */
export * from './colour-alpha';
export * from './cut-out';
export * from './deflate';
export * from './filter-rows';
export * from './foreground';
export * from './guided-filter';
export * from './merge-mattes';
export * from './resample';
export * from './shadow';
export * from './subject-parts';
export * from './visible-colours';

/** The first free address. */
export function freeFrom(): usize {
  return __heap_base;
}
