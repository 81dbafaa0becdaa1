/** How large a JPEG XL input or result may be on this machine. */
import { existsSync } from 'node:fs';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';

export const DJXL = '/usr/bin/djxl';
export const CJXL = '/usr/bin/cjxl';
/** Of util-linux: has the kernel kill the program when its parent dies. */
export const SETPRIV = '/usr/bin/setpriv';
export const SHELL = '/bin/sh';

/**
 * Of the codec in WebAssembly. Both an input and a result of one image, in a fresh instance, at 40
 * MP: 0.64 GB for the decode, 1.2 GB with the encode; at 64 MP 1.6 GB of the 2 GB that it gets.
 */
export const WASM_PIXELS_MAX = 40_000_000;

let there: boolean | undefined;

/** Asked once: a node says at its start what it can do. */
export function hasJxlTools(): boolean {
  there ??= [DJXL, CJXL, SETPRIV, SHELL, '/proc/self/fd'].every(existsSync);
  return there;
}

/** All that the contract allows where libjxl's own programs are installed. */
export function jxlPixelsMax(): number {
  return hasJxlTools() ? IMAGE_PIXELS_MAX : WASM_PIXELS_MAX;
}
