/** Tests a bucket by doing all that the service does with it, and removes what it wrote. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import {
  clockProblem,
  requireThat,
  type StorageFinding,
  StorageProblem,
} from '@matting/storage/storage-finding.ts';
import { BucketClient, type HashedBytes } from './bucket-client.ts';
import { BUCKET_BOUNDS, createBucketClients, PART_BYTES } from './bucket-connections.ts';
import { describeBucketError, isAlreadyThere, isMissing } from './bucket-error.ts';
import { signedReadsOf } from './bucket-signing.ts';
import type { BucketOptions } from './bucket-url.ts';

const STEP_MS_MAX = 30_000;
const SIGNED_MS = 60_000;

interface Step {
  readonly ability: string;
  /** S3's name of the right that the step needs. */
  readonly right?: string;
  run(): Promise<void>;
}

/** Problems of the bucket are findings, never rejections. */
export async function checkBucket(options: BucketOptions): Promise<readonly StorageFinding[]> {
  const ignore = () => undefined;
  const silent = { debug: ignore, info: ignore, warn: ignore, error: ignore, trace: ignore };
  const findings: StorageFinding[] = [];
  let check: BucketCheck;
  try {
    const { sdk, clients } = await createBucketClients(options, BUCKET_BOUNDS, silent);
    // Few attempts, since the operator waits for the answer.
    const once = { writes: clients.probes, reads: clients.probes, probes: clients.probes };
    const client = new BucketClient({ sdk, clients: once }, options, BUCKET_BOUNDS, {
      storageRequestEnded: ignore,
    });
    check = new BucketCheck(client, await signedReadsOf(client));
  } catch (error) {
    return [{ ability: 'credentials and region', problem: describeBucketError(error) }];
  }
  for (const step of check.steps()) {
    findings.push({ ability: step.ability, problem: await problemOf(step) });
  }
  const left = await check.clean();
  if (left.length > 0) {
    const problem = `could not be removed: ${left.join(', ')}`;
    findings.push({ ability: 'what the check itself wrote', problem });
  }
  return findings;
}

async function problemOf({ run, right }: Step): Promise<string | undefined> {
  try {
    await run();
    return undefined;
  } catch (error) {
    if (error instanceof StorageProblem) return error.message;
    const cause = (error as Error).cause ?? error;
    const needs = right === undefined ? '' : `; the right is ${right}`;
    return `${describeBucketError(cause)}${needs}`;
  }
}

function hashed(bytes: Uint8Array): HashedBytes {
  return { bytes, sha256: createHash('sha256').update(bytes).digest('hex') };
}

/** True if the store refuses as expected. Rejects on any other failure. */
async function fails(
  request: Promise<unknown>,
  isExpected: (error: { $metadata?: { httpStatusCode?: number } }) => boolean,
): Promise<boolean> {
  return await request.then(
    () => false,
    error => {
      if (!isExpected(error)) throw error;
      return true;
    },
  );
}

class BucketCheck {
  readonly #client: BucketClient;
  readonly #signRead: NonNullable<BlobStore['signRead']>;
  readonly #small = hashed(randomBytes(1000));
  /** The first is as large as a part of a large blob. */
  readonly #parts = [hashed(Buffer.alloc(PART_BYTES, 'part')), hashed(randomBytes(1000))];
  readonly #id = `check-${randomUUID()}`;
  /** One key in each folder, since policies may allow only some. */
  readonly #key = `results/${this.#id}`;
  readonly #input = `inputs/${this.#id}`;
  readonly #large = `backgrounds/${this.#id}`;
  readonly #uploads = new Set<string>();

  constructor(client: BucketClient, signRead: NonNullable<BlobStore['signRead']>) {
    this.#client = client;
    this.#signRead = signRead;
  }

  steps(): readonly Step[] {
    return [
      { ability: 'list', right: 's3:ListBucket', run: () => this.#list() },
      { ability: 'clock', run: () => this.#clock() },
      {
        ability: 'write',
        right: 's3:PutObject',
        run: () => this.#write(),
      },
      { ability: 'checksum of what is written', run: () => this.#wrongChecksum() },
      { ability: 'conditional write', run: () => this.#replace() },
      { ability: 'checksum as the store has it', run: () => this.#storedChecksum() },
      { ability: 'read', right: 's3:GetObject', run: () => this.#read() },
      { ability: 'range', run: () => this.#range() },
      { ability: 'write in parts', right: 's3:PutObject', run: () => this.#multipart() },
      {
        ability: 'list and end unfinished uploads',
        right: 's3:ListBucketMultipartUploads and s3:AbortMultipartUpload',
        run: () => this.#unfinished(),
      },
      { ability: 'signed download', run: () => this.#signedRead() },
      { ability: 'remove', right: 's3:DeleteObject', run: () => this.#remove() },
    ];
  }

  /** @returns keys that may be left over */
  async clean(): Promise<string[]> {
    const left: string[] = [];
    const remove = async (key: string, removing: Promise<void>) => {
      await removing.catch(error => {
        if (!isMissing(error)) left.push(this.#client.options.prefix + key);
      });
    };
    for (const key of [this.#key, this.#input, this.#large]) {
      await remove(key, this.#client.delete(key));
    }
    for (const id of this.#uploads) {
      await remove(this.#large, this.#client.abortMultipart(this.#large, id));
    }
    return left;
  }

  async #list(): Promise<void> {
    await this.#client.list(this.#key);
  }

  async #clock(): Promise<void> {
    const problem = clockProblem((await this.#client.list(this.#key)).nowMs);
    if (problem !== undefined) throw new StorageProblem(problem);
  }

  async #write(): Promise<void> {
    for (const key of [this.#key, this.#input]) await this.#client.put(key, this.#small);
  }

  /** Sends bytes with the checksum of others. */
  async #wrongChecksum(): Promise<void> {
    const { sdk, clients } = this.#client;
    const other = createHash('sha256').update('other bytes').digest('base64');
    const command = new sdk.PutObjectCommand({
      ...this.#client.writing(this.#input),
      Body: this.#small.bytes,
      ChecksumSHA256: other,
    });
    const sent = clients.probes.send(command);
    const refused = await fails(sent, error => error.$metadata?.httpStatusCode === 400);
    requireThat(refused, 'bytes that are not those of their SHA-256 were stored');
  }

  async #replace(): Promise<void> {
    const put = this.#client.put(this.#key, hashed(randomBytes(10)));
    const refused = await fails(put, isAlreadyThere);
    requireThat(refused, 'If-None-Match: * was not heeded: an object was replaced');
  }

  async #storedChecksum(): Promise<void> {
    const { bytes, storeSha256 } = await this.#client.head(this.#key);
    requireThat(bytes === this.#small.bytes.length, 'the size is another');
    requireThat(storeSha256 === this.#small.sha256, 'the store keeps no SHA-256 of an object');
  }

  async #read(): Promise<void> {
    const { body } = await this.#get();
    requireThat((await buffer(body)).equals(this.#small.bytes), 'other bytes were read');
  }

  async #range(): Promise<void> {
    const { body } = await this.#get('bytes=10-19');
    const expected = this.#small.bytes.subarray(10, 20);
    requireThat((await buffer(body)).equals(expected), 'a range gave other bytes');
  }

  #get(range?: string) {
    return this.#client.get(this.#key, { range, signal: AbortSignal.timeout(STEP_MS_MAX) });
  }

  async #multipart(): Promise<void> {
    const { sha256 } = hashed(Buffer.concat(this.#parts.map(({ bytes }) => bytes)));
    const uploadId = await this.#begin(sha256);
    const completed = [];
    for (const [index, part] of this.#parts.entries()) {
      const number = index + 1;
      completed.push(await this.#client.uploadPart(this.#large, { ...part, uploadId, number }));
    }
    await this.#client.completeMultipart(this.#large, { uploadId, parts: completed });
    this.#uploads.delete(uploadId);
    const { bytes } = await this.#client.head(this.#large);
    requireThat(bytes === PART_BYTES + 1000, 'the parts gave an object of another size');
  }

  async #begin(sha256: string): Promise<string> {
    const uploadId = await this.#client.createMultipart(this.#large, sha256);
    this.#uploads.add(uploadId);
    return uploadId;
  }

  async #unfinished(): Promise<void> {
    const uploadId = await this.#begin(this.#small.sha256);
    const { items } = await this.#client.listMultipart(this.#large);
    const listed = items.some(item => item.uploadId === uploadId);
    await this.#client.abortMultipart(this.#large, uploadId);
    this.#uploads.delete(uploadId);
    requireThat(listed, 'an unfinished upload is not listed');
  }

  async #signedRead(): Promise<void> {
    const url = await this.#signRead(this.#key, { forMs: SIGNED_MS });
    const answer = await fetch(url, { signal: AbortSignal.timeout(STEP_MS_MAX) });
    requireThat(answer.status === 200, `answered ${answer.status}`);
    const bytes = Buffer.from(await answer.arrayBuffer());
    requireThat(bytes.equals(this.#small.bytes), 'other bytes were read');
  }

  async #remove(): Promise<void> {
    await this.#client.delete(this.#key);
    const gone = await fails(this.#client.head(this.#key), isMissing);
    requireThat(gone, 'an object that was removed is still there');
  }
}
