/**
 * The picture worker's arithmetic for every pixel, in AssemblyScript (docs/adr/0014). A kernel
 * knows addresses and numbers only; the caller decides the memory's layout. A vector is four
 * floats: red, green, blue and one more.
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

export function freeFrom(): usize {
  return __heap_base;
}
