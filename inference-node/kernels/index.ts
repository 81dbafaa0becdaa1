/**
 * The arithmetic of the picture worker that is done for every pixel, in AssemblyScript: compiled to
 * WebAssembly with 128-bit vectors it takes a fifth of the time of the same loops in JavaScript. A
 * kernel knows addresses and numbers alone; ../src/picture/ owns the memory and says what lies
 * where. Compiled by `make generate` to ../src/picture/matte/kernels.wasm, which is committed.
 *
 * Pixels that are worked on are vectors of four floats: red, green, blue and one more.
 */
export * from './colour-alpha';
export * from './foreground';
export * from './guided-filter';
export * from './merge-mattes';
export * from './resample';
export * from './visible-colours';

/** The first address that is free. */
export function freeFrom(): usize {
  return __heap_base;
}
