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

interface DirectOrder {
  readonly origin: string;
  /** The files of a call. */
  readonly files: readonly { readonly key: keyof ReceivedFiles; readonly file: DeclaredFile }[];
}

/** The address of each file, and its name in an error. */
const ADDRESSES = {
  image: ['url', 'direct_input.url'],
  background: ['backgroundUrl', 'direct_input.background_url'],
  hints: ['hintsUrl', 'direct_input.hints_url'],
  givenMatte: ['matteUrl', 'direct_input.matte_url'],
} as const satisfies Record<string, readonly [keyof DirectInput, string]>;

type ReceivedFiles = { readonly image: Buffer } & {
  readonly [Key in keyof typeof ADDRESSES]?: Buffer;
};

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
  async receive(order: DirectOrder, input: DirectInput, limits: Limits): Promise<ReceivedFiles> {
    const { origin, files } = order;
    const keys = Object.keys(ADDRESSES) as (keyof typeof ADDRESSES)[];
    const wanted = keys.flatMap(key => {
      const [field, name] = ADDRESSES[key];
      const address = input[field];
      const file = files.find(one => one.key === key)?.file;
      if ((file === undefined) !== (address === '')) {
        const detail = `${name} must be there exactly if the header has its file.`;
        throw new ContractError('INVALID_REQUEST', detail);
      }
      if (file === undefined) return [];
      return [{ key, file, url: requireUrlOf(origin, address, name) }];
    });
    const received: Partial<Record<keyof typeof ADDRESSES, Buffer>> = {};
    for (const { key, file, url } of wanted) received[key] = await this.#get(url, file, limits);
    return received as ReceivedFiles;
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
    // Memory of its own: a pooled slice would pin its neighbours.
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
