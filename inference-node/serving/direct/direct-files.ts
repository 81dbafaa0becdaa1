/**
 * The files of an image that travel between this node and the object storage, past its caller. It
 * gets them by references and puts results by them, at the origins of its operator's list alone.
 */
import { createHash } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import type { DirectInput, ResultPlace } from '#gen/matting/v1/matte_service.ts';
import { requirePutHeaders, requireUrlOf } from './direct-origins.ts';
import { type Limits, StorageClient } from './storage-client.ts';

/** A file that was declared. */
export interface DeclaredFile {
  readonly contentLength: number;
  /** Undefined: what the storage says of it, if anything, is all that is checked. */
  readonly sha256: Buffer | undefined;
}

/** An image whose files are at an origin of the list. */
export interface DirectOrder extends DeclaredFile {
  readonly origin: string;
  /** Undefined: it has none. */
  readonly background: DeclaredFile | undefined;
}

export class DirectFiles {
  /** Empty: this node takes no references. */
  readonly origins: readonly string[];
  readonly #client: StorageClient;

  constructor(origins: readonly string[], client = new StorageClient()) {
    this.origins = origins;
    this.#client = client;
  }

  /**
   * Whether a header may name `origin`; undefined: it names none.
   * @param isFleet the call brought the fleet's token.
   * @throws ContractError INVALID_REQUEST, NODE_INCAPABLE
   */
  requireOrigin(origin: string, isFleet: boolean): string | undefined {
    if (origin === '') return undefined;
    if (!isFleet) {
      const detail = 'direct_origin is for control planes: send the bytes';
      throw new ContractError('INVALID_REQUEST', detail);
    }
    if (this.origins.includes(origin)) return origin;
    throw new ContractError('NODE_INCAPABLE', 'this node takes no files from that direct_origin');
  }

  /**
   * Every reference is checked before the first is requested.
   * @throws ContractError INVALID_REQUEST, STORAGE_UNREACHABLE, or the signal's reason
   */
  async receive(
    order: DirectOrder,
    input: DirectInput,
    limits: Limits,
  ): Promise<{ image: Buffer; background?: Buffer }> {
    const { origin, background } = order;
    const url = requireUrlOf(origin, input.url, 'direct_input.url');
    if ((background === undefined) !== (input.backgroundUrl === '')) {
      const detail = 'direct_input.background_url goes with finishing.background_picture';
      throw new ContractError('INVALID_REQUEST', detail);
    }
    const behind =
      background && requireUrlOf(origin, input.backgroundUrl, 'direct_input.background_url');
    const image = await this.#get(url, order, limits);
    if (background === undefined || behind === undefined) return { image };
    return { image, background: await this.#get(behind, background, limits) };
  }

  /** @throws ContractError INVALID_REQUEST, STORAGE_UNREACHABLE, or the signal's reason */
  async put(origin: string, place: ResultPlace, file: Buffer, limits: Limits): Promise<void> {
    const url = requireUrlOf(origin, place.url, 'result_place.url');
    const headers = requirePutHeaders(place.headers, file.length);
    const withinMs = Math.min(limits.withinMs, place.validMs);
    await this.#client.put(url, headers, file, { ...limits, withinMs });
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  async #get(
    url: ReturnType<typeof requireUrlOf>,
    { contentLength, sha256 }: DeclaredFile,
    limits: Limits,
  ): Promise<Buffer> {
    // Its own memory, of the size that was admitted: a pooled slice would pin its neighbours.
    const file = Buffer.allocUnsafeSlow(contentLength);
    const stored = await this.#client.get(url, file, limits);
    const expected = sha256 ?? stored;
    if (expected === undefined) return file;
    if (createHash('sha256').update(file).digest().equals(expected)) return file;
    throw new ContractError('STORAGE_UNREACHABLE', 'the bytes that came have another SHA-256');
  }
}
