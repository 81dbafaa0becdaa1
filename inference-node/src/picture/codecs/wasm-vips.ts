/**
 * libvips as WebAssembly, for what the prebuilt sharp has not: JPEG XL, and colour profiles of
 * samples that are no file. The only importer of wasm-vips, and loads it with the first picture
 * that needs it: 90 ms and 45 MB (2 cores of an AMD EPYC).
 *
 * Its memory is 2 GB of WebAssembly at most, grows and never shrinks, and splinters: a second
 * picture of 24 MP in one instance failed, a first one of 64 MP did not. So a process that has
 * become large is replaced after its image (worker-process.ts), and so is one whose instance
 * aborted.
 */
import type Vips from 'wasm-vips';
import { ContractError } from '#contract/errors.ts';

/**
 * Of libjxl inside WebAssembly. 12 MP: 1.4 s of processor time with one as with two; two halve the
 * wait of whoever asked for the slowest of the formats.
 */
const THREADS = 2;

let loading: Promise<typeof Vips> | undefined;
let aborted = false;

/** After an abort its images answer nothing any more, and the process has to go. */
export function isVipsPoisoned(): boolean {
  return aborted;
}

async function loadVips(): Promise<typeof Vips> {
  const { default: createVips } = await import('wasm-vips');
  const vips = await createVips({
    dynamicLibraries: ['vips-jxl.wasm'],
    // Its errors are thrown as well; standard error is the node's log.
    print: () => undefined,
    printErr: () => undefined,
    onAbort: noteAbort,
  });
  vips.operationBlock('VipsForeignLoad', true);
  vips.operationBlock('VipsForeignLoadJxl', false);
  vips.concurrency(THREADS);
  vips.Cache.max(0);
  return vips;
}

/** What is left to do for the image gets another instance. */
function noteAbort(): void {
  aborted = true;
  loading = undefined;
}

export function requireVips(): Promise<typeof Vips> {
  loading ??= loadVips();
  return loading;
}

/**
 * Images of one piece of work: their memory is freed by hand, or not before the next collection.
 */
export class Scratch {
  readonly #images: Vips.Image[] = [];

  keep(image: Vips.Image): Vips.Image {
    this.#images.push(image);
    return image;
  }

  free(): void {
    if (!aborted) for (const image of this.#images.splice(0)) image.delete();
  }
}

/** WebAssembly.RuntimeError: what an abort throws. */
export function isTrap(error: unknown): boolean {
  return error instanceof Error && error.name === 'RuntimeError';
}

/** @throws ContractError NODE_INCAPABLE where memory is missing, PROCESSING_FAILED else. */
export function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (isTrap(error)) noteAbort();
    const message = error instanceof Error ? error.message : String(error);
    if (/out of memory/i.test(message)) {
      const detail = 'this node has not the memory for an image of this kind';
      throw new ContractError('NODE_INCAPABLE', detail, { cause: error });
    }
    const detail = 'the image is damaged or cannot be processed';
    throw new ContractError('PROCESSING_FAILED', detail, { cause: error });
  }
}
