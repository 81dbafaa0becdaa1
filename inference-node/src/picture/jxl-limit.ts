/**
 * Pixels of a JPEG XL input or result. Both of one image, in a fresh instance of the codec, at 40
 * MP: 0.64 GB for the decode, 1.2 GB with the encode; at 64 MP 1.6 GB of the 2 GB that WebAssembly
 * gives.
 */
export const JXL_PIXELS_MAX = 40_000_000;
