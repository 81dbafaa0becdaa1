/** Files between this node and object storage, at the origins of its operator's list. */

import { createHash } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { DirectInput, ResultPlace } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { requirePutHeaders, requireUrlOf } from './direct-origins.ts';
import { type Limits, StorageClient } from './storage-client.ts';

interface DeclaredFile {
  readonly contentLength: number;
  /** Undefined: the node checks only what the storage reports, if anything. */
  readonly sha256: Buffer | undefined;
}

interface DirectOrder extends DeclaredFile {
  readonly origin: string;
  /** Undefined: the image has no background. */
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

  /** @throws ContractError INVALID_REQUEST, NODE_INCAPABLE. `isFleet`: with the fleet's token. */
  requireOrigin(origin: string, isFleet: boolean): string | undefined {
    if (origin === '') return undefined;
    if (!isFleet) {
      const detail = 'Only control planes can use direct_origin. Send the bytes.';
      throw new ContractError('INVALID_REQUEST', detail);
    }
    if (this.origins.includes(origin)) return origin;
    throw new ContractError(
      'NODE_INCAPABLE',
      'This node does not take files from this direct_origin.',
    );
  }

  /**
   * Checks all files first.
   * @throws ContractError INVALID_REQUEST, STORAGE_UNREACHABLE
   */
  async receive(
    order: DirectOrder,
    input: DirectInput,
    limits: Limits,
  ): Promise<{ image: Buffer; background?: Buffer }> {
    const { origin, background } = order;
    const url = requireUrlOf(origin, input.url, 'direct_input.url');
    if ((background === undefined) !== (input.backgroundUrl === '')) {
      const detail =
        'direct_input.background_url needs finishing.background_picture, and the reverse.';
      throw new ContractError('INVALID_REQUEST', detail);
    }
    const behind =
      background && requireUrlOf(origin, input.backgroundUrl, 'direct_input.background_url');
    const image = await this.#get(url, order, limits);
    if (background === undefined || behind === undefined) return { image };
    return { image, background: await this.#get(behind, background, limits) };
  }

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
    // Its own memory: a pooled slice would pin its neighbours.
    const file = Buffer.allocUnsafeSlow(contentLength);
    const stored = await this.#client.get(url, file, limits);
    const expected = sha256 ?? stored;
    if (expected === undefined) return file;
    if (createHash('sha256').update(file).digest().equals(expected)) return file;
    throw new ContractError(
      'STORAGE_UNREACHABLE',
      'The bytes from the storage have another SHA-256.',
    );
  }
}
