/**
 * Admits images. An image needs a permit before a byte of it is received, and holds it until its
 * result is sent: one of a number of slots, its megapixels out of a budget that keeps the picture
 * workers within the node's memory, and its file's bytes. Nothing waits here: no permit free is an
 * answer at once, so that the caller tries another node.
 *
 * What is in use is summed over the permits that live, never counted up and down.
 */
import { ContractError } from '#contract/errors.ts';

/** Files of all admitted images together: ten of the largest. They lie in the main process. */
export const FILE_BYTES_MAX = 512 * 1024 * 1024;

export interface AdmissionLimits {
  /** Images admitted at once. */
  readonly imagesMax: number;
  /** Sum of what is admitted at once. */
  readonly megapixelsMax: number;
  /** A larger one image is admitted up to this while it is alone; more than this never. */
  readonly megapixelsAloneMax: number;
}

/** What an image takes. */
interface Share {
  /** As memory-budget.ts counts it. */
  readonly megapixels: number;
  readonly fileBytes: number;
}

export interface Permit {
  readonly megapixels: number;
  /** Images admitted before this one and not finished. */
  readonly queuePosition: number;
  /** Idempotent. */
  release(): void;
}

export class Admission {
  readonly limits: AdmissionLimits;
  #imagesShare = 1;
  readonly #held = new Set<Share>();
  readonly #listeners = new Set<() => void>();

  constructor(limits: AdmissionLimits) {
    this.limits = Object.freeze({ ...limits });
  }

  /**
   * @throws ContractError NODE_OVERLOADED: no place; NODE_SHORT_OF_MEMORY: a smaller one might be
   * admitted; NODE_INCAPABLE: this node can never hold it
   */
  admit(request: Share): Permit {
    const { megapixels } = request;
    const inUse = this.snapshot();
    const { imagesMax } = inUse;
    if (megapixels > this.#megapixelsAlone()) {
      const detail = 'this node has not the memory for an image of that size';
      throw new ContractError('NODE_INCAPABLE', detail);
    }
    if (inUse.images >= imagesMax) {
      const detail = `all ${imagesMax} places of this node are taken`;
      throw new ContractError('NODE_OVERLOADED', detail);
    }
    if (inUse.fileBytes + request.fileBytes > FILE_BYTES_MAX) {
      const detail = 'this node holds as many bytes of files as it may';
      throw new ContractError('NODE_SHORT_OF_MEMORY', detail);
    }
    if (megapixels > inUse.megapixelsFree) {
      throw new ContractError('NODE_SHORT_OF_MEMORY', 'this node has too few megapixels free');
    }
    const entry = Object.freeze({ ...request });
    this.#held.add(entry);
    this.#changed();
    return {
      megapixels,
      queuePosition: inUse.images,
      release: () => {
        if (this.#held.delete(entry)) this.#changed();
      },
    };
  }

  /** `megapixelsFree`: the largest image that would be admitted now, a slot allowing. */
  snapshot() {
    let megapixels = 0;
    let fileBytes = 0;
    for (const permit of this.#held) {
      megapixels += permit.megapixels;
      fileBytes += permit.fileBytes;
    }
    const { megapixelsMax } = this.limits;
    const imagesMax = Math.max(1, Math.ceil(this.limits.imagesMax * this.#imagesShare));
    const images = this.#held.size;
    const megapixelsFree =
      images === 0 ? this.#megapixelsAlone() : Math.max(0, megapixelsMax - megapixels);
    return { images, imagesMax, megapixels, megapixelsMax, megapixelsFree, fileBytes };
  }

  /** Part of its GPUs is out, or back: `share` of the places are left, 0 to 1. */
  setImagesShare(share: number): void {
    if (share === this.#imagesShare) return;
    this.#imagesShare = share;
    this.#changed();
  }

  /** Called after each admission, each release and each change of the places. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #megapixelsAlone(): number {
    return Math.max(this.limits.megapixelsMax, this.limits.megapixelsAloneMax);
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
