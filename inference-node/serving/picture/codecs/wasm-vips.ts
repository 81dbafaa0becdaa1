/**
 * libvips as WebAssembly, for what the prebuilt sharp lacks: JPEG XL, and ICC conversion in memory.
 * The only importer of wasm-vips, loaded with the first picture that needs it: 90 ms and 45 MB (2
 * cores of an AMD EPYC). Its memory is at most 2 GB, never shrinks, and fragments: a process that
 * has grown large, or whose instance aborted, is replaced after its image (worker-process.ts).
 */

import { ContractError } from '@matting/proto/contract/errors.ts';
import type Vips from 'wasm-vips';

/** The threads of libjxl in WebAssembly: two halve the wait for the slowest of the formats. */
const THREADS = 2;

let loading: Promise<typeof Vips> | undefined;
let aborted = false;

/** An instance aborted: its images are unusable, and the process has to be replaced. */
export function isVipsPoisoned(): boolean {
  return aborted;
}

async function loadVips(): Promise<typeof Vips> {
  const { default: createVips } = await import('wasm-vips');
  const vips = await createVips({
    dynamicLibraries: ['vips-jxl.wasm'],
    // Errors are thrown as well; standard error is the node's log.
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

function noteAbort(): void {
  aborted = true;
  loading = undefined;
}

export function requireVips(): Promise<typeof Vips> {
  loading ??= loadVips();
  return loading;
}

/** Images of one task. If it is not disposed of, their memory lives until the next collection. */
export class Scratch {
  readonly #images: Vips.Image[] = [];

  keep(image: Vips.Image): Vips.Image {
    this.#images.push(image);
    return image;
  }

  [Symbol.dispose](): void {
    if (!aborted) for (const image of this.#images.splice(0)) image.delete();
  }
}

/** WebAssembly.RuntimeError, which an abort throws. */
export function isTrap(error: unknown): boolean {
  return error instanceof Error && error.name === 'RuntimeError';
}

/** @throws ContractError NODE_INCAPABLE where memory is missing, else PROCESSING_FAILED. */
export function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (isTrap(error)) noteAbort();
    const message = error instanceof Error ? error.message : String(error);
    if (/out of memory/i.test(message)) {
      const detail = 'This node has too little memory for this image.';
      throw new ContractError('NODE_INCAPABLE', detail, { cause: error });
    }
    const detail = 'The image is damaged or cannot be processed.';
    throw new ContractError('PROCESSING_FAILED', detail, { cause: error });
  }
}
