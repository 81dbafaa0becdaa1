/** How large a JPEG XL input or result may be on this machine. */
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import { hasJxlTools } from './jxl-tools.ts';

/**
 * Of the codec in WebAssembly. Both an input and a result of one image, in a fresh instance, at 40
 * MP: 0.64 GB for the decode, 1.2 GB with the encode; at 64 MP 1.6 GB of the 2 GB that it gets.
 */
export const WASM_PIXELS_MAX = 40_000_000;

/** All that the contract allows where libjxl's own programs are installed. */
export function jxlPixelsMax(): number {
  return hasJxlTools() ? IMAGE_PIXELS_MAX : WASM_PIXELS_MAX;
}
