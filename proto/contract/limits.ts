/** Bounds of both programs and their callers. The image limits belong to the public contract. */

/** Decoded: 50 MB, for Base64, URL and gRPC. */
export const IMAGE_BYTES_MAX = 52_428_800;
export const IMAGE_SIDE_PX_MAX = 10_000;
export const IMAGE_PIXELS_MAX = 100_000_000;
/** A background's file. */
export const BACKGROUND_BYTES_MAX = 10_485_760;
/** A background; its sides have IMAGE_SIDE_PX_MAX. */
export const BACKGROUND_PIXELS_MAX = 25_000_000;
/** A frame that fields enlarge; its sides have IMAGE_SIDE_PX_MAX. */
export const FRAME_PIXELS_MAX = 50_000_000;
/** Characters, 0x20 to 0x7E. */
export const IDEMPOTENCY_KEY_LENGTH_MAX = 128;
/** Of image_url and callback_url. */
export const URL_LENGTH_MAX = 2048;
/** 50 MB in Base64, with white space and the other fields. */
export const REQUEST_BODY_BYTES_MAX = 72 * 1024 * 1024;

/**
 * Data of a gRPC chunk. 40 MB over loopback took 166 ms in chunks of 16 KiB, 139 of 64 KiB, 78 of
 * 256 KiB, 76 of 1 MiB (2 cores of an AMD EPYC).
 */
export const CHUNK_BYTES_MAX = 256 * 1024;
/** In both directions. Chunks are the largest. */
export const MESSAGE_BYTES_MAX = 1024 * 1024;
/** The first message of a Matte call, if the node has the capability `hints.many_points`. */
export const HEADER_BYTES_MAX = 64 * 1024;
/** The first message for any node, and all messages of methods without files. */
export const MESSAGE_BYTES_SMALL = 4096;
/** 100 megapixels of noise as PNG are 400 MB. */
export const RESULT_BYTES_MAX = 512 * 1024 * 1024;
/** A WebP for lists: bytes, and pixels of the long side. */
export const THUMBNAIL_BYTES_MAX = 10_240;
export const THUMBNAIL_SIDE_PX_MAX = 160;
/** For corrections: two megapixels of noise as grey PNG. */
export const MATTE_BYTES_MAX = 2_621_440;
