/**
 * JPEG XL through wasm-vips (libvips with libjxl), which the prebuilt sharp has not. The only
 * importer of wasm-vips, and loads it with the first JPEG XL picture: 90 ms and 45 MB (2 cores of
 * an AMD EPYC).
 *
 * Its memory is 2 GB of WebAssembly at most, grows and never shrinks, and splinters: a second
 * picture of 24 MP in one instance failed, a first one of 64 MP did not. So a process that has
 * become large is replaced after its image (worker-process.ts), and so is one whose instance
 * aborted.
 */
import type Vips from 'wasm-vips';
import { ContractError } from '#contract/errors.ts';
import type { RawPixels } from './codec-sharp.ts';
import { isCmykProfile, isRgbProfile, isSrgbProfile } from './icc.ts';
import { WASM_PIXELS_MAX } from './jxl-limit.ts';
import {
  DJXL_EXTRA_CHANNELS_MAX,
  decodeInksWithDjxl,
  decodeWithDjxl,
  encodeWithCjxl,
  hasJxlTools,
} from './jxl-tools.ts';
import type { OpenedPicture } from './opened-picture.ts';
import { viewAsPixels } from './rgba-picture.ts';

/** Visually lossless by the format's own measure; the contract asks for this or better. */
const DISTANCE = 1;
/**
 * Of 1 to 9. A photo with alpha of 12 MP takes 1.6 s at 3, 2.2 s at 4 for a file that is no
 * smaller; one of 2 MP 0.2 s at 3, 1.2 s at 7 (2 cores of an AMD EPYC).
 */
const EFFORT = 3;

/**
 * Of libjxl inside WebAssembly. 12 MP: 1.4 s of processor time with one as with two; two halve the
 * wait of whoever asked for the slowest of the formats.
 */
const THREADS = 2;

/** Below this a failure is the file's: WebAssembly's memory is enough for any picture. */
const RETRY_PIXELS_MIN = 8_000_000;
/** Rows whose colours are converted at once. */
const STRIP_ROWS = 128;

const ICC_FIELD = 'icc-profile-data';
const PAGES_FIELD = 'n-pages';

let loading: Promise<typeof Vips> | undefined;
let aborted = false;

/** After an abort the instance answers nothing any more: the process has to go. */
export function isJxlPoisoned(): boolean {
  return aborted;
}

async function loadVips(): Promise<typeof Vips> {
  const { default: createVips } = await import('wasm-vips');
  const vips = await createVips({
    dynamicLibraries: ['vips-jxl.wasm'],
    // Its errors are thrown as well; standard error is the node's log.
    print: () => undefined,
    printErr: () => undefined,
    onAbort: () => {
      aborted = true;
    },
  });
  vips.operationBlock('VipsForeignLoad', true);
  vips.operationBlock('VipsForeignLoadJxl', false);
  vips.concurrency(THREADS);
  vips.Cache.max(0);
  return vips;
}

function requireVips(): Promise<typeof Vips> {
  loading ??= loadVips();
  return loading;
}

/**
 * Images of one piece of work: their memory is freed by hand, or not before the next collection.
 */
class Scratch {
  readonly #images: Vips.Image[] = [];

  keep(image: Vips.Image): Vips.Image {
    this.#images.push(image);
    return image;
  }

  free(): void {
    if (!aborted) for (const image of this.#images.splice(0)) image.delete();
  }
}

/**
 * Reads the header, not a pixel.
 * @throws ContractError UNSUPPORTED_IMAGE_FORMAT, PROCESSING_FAILED
 */
export async function openJxl(file: Buffer): Promise<OpenedPicture> {
  const vips = await requireVips();
  const scratch = new Scratch();
  const image = attempt(() =>
    scratch.keep(vips.Image.jxlloadBuffer(file, { access: 'sequential', fail_on: 'error' })),
  );
  if (image.getTypeof(PAGES_FIELD) !== 0 && image.getInt(PAGES_FIELD) > 1) {
    scratch.free();
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', 'animated images are not supported');
  }
  // libjxl has turned it upright already.
  const { width, height } = image;
  return { width, height, readPixels: () => readPixels(file, image, scratch) };
}

/**
 * In WebAssembly, and where that has not the memory, by libjxl's own program. Which pictures those
 * are depends on more than their size (lossless ones take four times as much), so a large one that
 * failed here is tried there. So is what libvips (8.18) cannot read: it takes any one channel
 * beside the colours for alpha, and fails at two.
 */
async function readPixels(file: Buffer, image: Vips.Image, scratch: Scratch) {
  const { width, height } = image;
  const translucent = image.hasAlpha();
  const extraChannels = countExtraChannels(image);
  try {
    const ownProfile = readProfile(image);
    if (ownProfile !== undefined && isCmykProfile(ownProfile)) {
      requireTools(extraChannels);
      return await readInks(file, { width, height }, ownProfile, extraChannels);
    }
    if (extraChannels > 1) requireTools(extraChannels);
    else if (width * height <= WASM_PIXELS_MAX) {
      try {
        return { rgba: readInWasm(image, scratch), translucent };
      } catch (error) {
        if (width * height < RETRY_PIXELS_MIN || !hasJxlTools()) throw error;
      }
    }
    // After an abort nothing can be asked of the image any more.
    const profile = aborted ? undefined : readProfile(image);
    const samples = await decodeWithDjxl(file, { width, height });
    // What is grey has a grey profile, and the program spread it to three colours.
    if (profile !== undefined && isRgbProfile(profile) && !isSrgbProfile(profile)) {
      await convertStrips(samples, width, height, profile);
    }
    return { rgba: viewAsPixels(samples), translucent };
  } finally {
    scratch.free();
  }
}

function readProfile(image: Vips.Image): Uint8Array | undefined {
  return image.getTypeof(ICC_FIELD) === 0 ? undefined : image.getBlob(ICC_FIELD);
}

/** Beside the colours: alpha is one. */
function countExtraChannels({ bands, interpretation }: Vips.Image): number {
  return bands - (interpretation === 'b-w' || interpretation === 'grey16' ? 1 : 3);
}

function requireTools(extraChannels: number): void {
  if (extraChannels > DJXL_EXTRA_CHANNELS_MAX) {
    const detail = 'the JPEG XL image has more channels than can be read';
    throw new ContractError('PROCESSING_FAILED', detail);
  }
  if (!hasJxlTools()) {
    const detail =
      'this node reads JPEG XL of CMYK or of more channels than RGBA only with libjxl-tools';
    throw new ContractError('NODE_INCAPABLE', detail);
  }
}

/** CMYK, whose black is a channel beside the colours. */
async function readInks(
  file: Buffer,
  size: { readonly width: number; readonly height: number },
  profile: Uint8Array,
  extraChannels: number,
) {
  const { cmya, black, hasAlpha } = await decodeInksWithDjxl(file, size);
  if (extraChannels !== (hasAlpha ? 2 : 1)) {
    throw new ContractError('PROCESSING_FAILED', 'the JPEG XL image has inks beside CMYK');
  }
  const vips = await requireVips();
  for (let at = 0; at < black.length; at += STRIP_ROWS * size.width) {
    const blackStrip = black.subarray(at, at + STRIP_ROWS * size.width);
    const strip = cmya.subarray(at * 4, (at + blackStrip.length) * 4);
    const scratch = new Scratch();
    try {
      const rgb = attempt(() => {
        const inks = invertInks(strip, blackStrip);
        const rows = blackStrip.length / size.width;
        const raw = vips.Image.newFromMemory(inks, size.width, rows, 4, vips.BandFormat.uchar);
        const image = scratch.keep(scratch.keep(raw).copy({ interpretation: 'cmyk' }));
        image.setBlob(ICC_FIELD, profile);
        return toSrgb(image, scratch).writeToMemory() as Uint8Array;
      });
      for (let i = 0; i < blackStrip.length; i++) strip.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
    } finally {
      scratch.free();
    }
  }
  return { rgba: viewAsPixels(cmya), translucent: hasAlpha };
}

/** To what colour management takes: 255 is all of an ink, black the fourth. */
function invertInks(cmya: Uint8Array, black: Uint8Array): Uint8Array {
  const inks = new Uint8Array(cmya.length);
  for (let i = 0; i < inks.length; i++) inks[i] = 255 - (i % 4 === 3 ? black[i >> 2] : cmya[i]);
  return inks;
}

/** RGBA in a profile's colours to sRGB, in place. */
async function convertStrips(
  samples: Uint8Array,
  width: number,
  height: number,
  profile: Uint8Array,
): Promise<void> {
  const vips = await requireVips();
  for (let top = 0; top < height; top += STRIP_ROWS) {
    const strip = samples.subarray(top * width * 4, (top + STRIP_ROWS) * width * 4);
    const scratch = new Scratch();
    try {
      const rows = strip.length / (width * 4);
      const raw = vips.Image.newFromMemory(strip, width, rows, 4, vips.BandFormat.uchar);
      const image = scratch.keep(scratch.keep(raw).copy({ interpretation: 'srgb' }));
      image.setBlob(ICC_FIELD, profile);
      const converted = toSrgb(image, scratch).writeToMemory() as Uint8Array;
      strip.set(converted);
    } finally {
      scratch.free();
    }
  }
}

function readInWasm(image: Vips.Image, scratch: Scratch): Uint32Array {
  return attempt(() => {
    const srgb = toSrgb(image, scratch);
    const rgba = image.hasAlpha() ? srgb : scratch.keep(srgb.bandjoin(255));
    if (rgba.bands !== 4) throw new Error(`${rgba.bands} channels after the conversion to sRGB`);
    return viewAsPixels(rgba.writeToMemory() as Uint8Array);
  });
}

/** 8 bits, three colours, and alpha after them where there is one. */
function toSrgb(image: Vips.Image, scratch: Scratch): Vips.Image {
  const colours = scratch.keep(convertProfile(image, scratch).colourspace('srgb'));
  return scratch.keep(colours.cast('uchar'));
}

/** libjxl gives a profile with every picture; most are sRGB. */
function convertProfile(image: Vips.Image, scratch: Scratch): Vips.Image {
  if (image.getTypeof(ICC_FIELD) === 0 || isSrgbProfile(image.getBlob(ICC_FIELD))) return image;
  const depth = image.format === 'uchar' ? 8 : 16;
  const options = { embedded: true, depth, intent: 'perceptual' } as const;
  try {
    return scratch.keep(image.iccTransform('srgb', options));
  } catch (error) {
    // A profile that cannot be read is no profile, as it is to sharp and to browsers.
    if (isTrap(error)) throw error;
    return image;
  }
}

/** Colours at DISTANCE and alpha without loss; a grey plane without loss. */
export async function encodeJxl(pixels: RawPixels): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  if (width * height > WASM_PIXELS_MAX) {
    const distance = channels === 1 ? 0 : DISTANCE;
    return await encodeWithCjxl(pixels, { distance, effort: EFFORT });
  }
  const vips = await requireVips();
  const scratch = new Scratch();
  try {
    return attempt(() => {
      const raw = scratch.keep(
        vips.Image.newFromMemory(data, width, height, channels, vips.BandFormat.uchar),
      );
      const interpretation = channels === 1 ? 'b-w' : 'srgb';
      const image = scratch.keep(raw.copy({ interpretation }));
      const quality = channels === 1 ? { lossless: true } : { distance: DISTANCE };
      const file = image.jxlsaveBuffer({ ...quality, effort: EFFORT, keep: 'none' });
      return Buffer.from(file.buffer, file.byteOffset, file.byteLength);
    });
  } finally {
    scratch.free();
  }
}

/** WebAssembly.RuntimeError: what an abort throws. */
function isTrap(error: unknown): boolean {
  return error instanceof Error && error.name === 'RuntimeError';
}

function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (isTrap(error)) aborted = true;
    const message = error instanceof Error ? error.message : String(error);
    if (/out of memory/i.test(message)) {
      const detail = 'this node has not the memory for a JPEG XL image of this kind';
      throw new ContractError('NODE_INCAPABLE', detail, { cause: error });
    }
    const detail = 'the image is damaged or cannot be processed';
    throw new ContractError('PROCESSING_FAILED', detail, { cause: error });
  }
}
