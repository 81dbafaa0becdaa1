/** How large a JPEG XL input or result may be on this machine. */
import { existsSync } from 'node:fs';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import { WASM_PIXELS_MAX } from '#contract/picture-memory.ts';

export const DJXL = '/usr/bin/djxl';
export const CJXL = '/usr/bin/cjxl';
/** From util-linux: the kernel kills the program when its parent dies. */
export const SETPRIV = '/usr/bin/setpriv';
export const SHELL = '/bin/sh';

let hasTools: boolean | undefined;

/** Checked once: a node reports at its start what it can do. */
export function hasJxlTools(): boolean {
  hasTools ??= [DJXL, CJXL, SETPRIV, SHELL, '/proc/self/fd'].every(existsSync);
  return hasTools;
}

/** The contract's limit where libjxl's own programs are installed. */
export function jxlPixelsMax(): number {
  return hasJxlTools() ? IMAGE_PIXELS_MAX : WASM_PIXELS_MAX;
}
