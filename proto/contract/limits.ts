/**
 * Bounds that both programs and their callers share. The image limits are the public contract's;
 * the transport's are ours, with the measurement that chose them.
 */

/** Decoded bytes of an input file: 50 MB, as Base64, URL and gRPC alike. */
export const IMAGE_BYTES_MAX = 52_428_800;
/** Pixels a side. */
export const IMAGE_SIDE_PX_MAX = 10_000;
/** Pixels in all. */
export const IMAGE_PIXELS_MAX = 100_000_000;
/** Bytes of a file that becomes the background of a result. */
export const BACKGROUND_BYTES_MAX = 10_485_760;
/** Pixels of such a file in all; IMAGE_SIDE_PX_MAX a side. */
export const BACKGROUND_PIXELS_MAX = 25_000_000;
/** Pixels of a frame that fields make larger than the picture; IMAGE_SIDE_PX_MAX a side. */
export const FRAME_PIXELS_MAX = 50_000_000;
/** Characters of an Idempotency-Key, each 0x20 to 0x7E. */
export const IDEMPOTENCY_KEY_LENGTH_MAX = 128;
/** Characters of image_url and callback_url. */
export const URL_LENGTH_MAX = 2048;
/** A request body: 50 MB in Base64 with white space and the other fields, with room. */
export const REQUEST_BODY_BYTES_MAX = 72 * 1024 * 1024;

/**
 * Data of one gRPC chunk. 40 MB over loopback took 166 ms in chunks of 16 KiB, 139 of 64 KiB, 78 of
 * 256 KiB, 76 of 1 MiB (2 cores of an AMD EPYC).
 */
export const CHUNK_BYTES_MAX = 256 * 1024;
/** A gRPC message, on both sides. Chunks are the largest. */
export const MESSAGE_BYTES_MAX = 1024 * 1024;
/** The first message of a Matte call, if the node lists the capability `hints.many_points`. */
export const HEADER_BYTES_MAX = 64 * 1024;
/** The same on every node; and the messages of all methods but those that carry files. */
export const MESSAGE_BYTES_SMALL = 4096;
/** A result file. 100 megapixels of noise as PNG are 400 MB. */
export const RESULT_BYTES_MAX = 512 * 1024 * 1024;
/** A small WebP of a result, for lists: bytes, and pixels of its long side. */
export const THUMBNAIL_BYTES_MAX = 10_240;
export const THUMBNAIL_SIDE_PX_MAX = 160;
/** A matte that waits for corrections: at most two megapixels of noise as grey PNG. */
export const MATTE_BYTES_MAX = 2_621_440;
