/**
 * A batch of images by their URLs: what its text shows wrong refuses the whole; what only a
 * download shows is the error of one job. The order is that of a single request: fields, then
 * replay or conflict, then what no node can do, the callback, open batches and credits.
 */
import { hash, randomUUID } from 'node:crypto';
import { bytesOfText, type TextValue, underPath } from '@matting/http/body-fields.ts';
import { Turns } from '@matting/program/turns.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { CallbackAddressCheck } from '../fetching/callback-check.ts';
import type { Batch, BatchStore } from '../jobs/batch.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { Caller } from '../keys/caller.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import {
  type batchSubmission,
  type NewBatch,
  OPEN_BATCHES_MAX,
} from '../transactions/batch-submission.ts';
import type { AcceptanceGate } from './acceptance-gate.ts';
import { fingerprintOf, idempotencyKeyHash } from './fingerprint.ts';
import {
  type FieldPolicy,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
  requireReference,
  requireUrl,
} from './matting-request.ts';
import { keyConflict, noCredit, templateOf } from './submit-matting.ts';

const OPEN_RETRY_AFTER_S = 60;

interface SubmitBatchDependencies {
  readonly batches: BatchStore & ReturnType<typeof batchSubmission>;
  readonly jobs: Pick<JobStore, 'findByIdempotencyKey'>;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble'>;
  readonly models: Pick<OfferedModels, 'require'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'requireOf'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly fieldPolicy: FieldPolicy;
  readonly sells: boolean;
  /** Runs once the batch is committed: any replica can make jobs of its items. */
  readonly onSubmitted: () => void;
}

export interface BatchFields {
  /** Fields of all items. */
  readonly shared: MattingFields['texts'];
  /** 1 to BATCH_ITEMS_MAX. */
  readonly items: readonly {
    readonly imageUrl: TextValue;
    readonly reference: TextValue | undefined;
  }[];
}

interface BatchSubmission {
  readonly caller: Caller;
  /** The key is checked once more: a name was looked up since. */
  readonly askAgain: () => Promise<Caller>;
  readonly idempotencyKey: string;
  readonly fields: BatchFields;
}

export class SubmitBatch {
  readonly #dependencies: SubmitBatchDependencies;

  constructor(dependencies: SubmitBatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws ContractError every code of a refused submission */
  async submit({ caller, askAgain, idempotencyKey, fields }: BatchSubmission) {
    const { batches, jobs, callbackSecrets, sells, onSubmitted } = this.#dependencies;
    const { request, items } = await this.#requireFields(fields);
    const { apiKeyId } = caller;
    const keyHash = idempotencyKeyHash(idempotencyKey);
    const fingerprint = fingerprintOfBatch(request, items);
    const known = await batches.findByIdempotencyKey(apiKeyId, keyHash);
    if (known !== undefined) return existing(known, fingerprint);
    const job = await jobs.findByIdempotencyKey(apiKeyId, keyHash);
    if (job !== undefined) throw keyConflict(job.id);
    try {
      await this.#requireAccepting(caller, request);
    } catch (refusal) {
      // A twin may have made the batch meanwhile, and a join is not refused.
      const made = await batches.findByIdempotencyKey(apiKeyId, keyHash);
      if (made === undefined) throw refusal;
      return existing(made, fingerprint);
    }
    const { accountId, policy } = await askAgain();
    const id = randomUUID();
    const { callback } = request;
    const batch: NewBatch = {
      id,
      accountId,
      apiKeyId,
      keyHasCap: policy?.cap !== undefined,
      idempotencyKeyHash: keyHash,
      fingerprint,
      request: templateOf(request, null),
      items: items.map(item => ({ jobId: randomUUID(), ...item })),
      callback: callback && { url: callback.url, ...callbackSecrets.seal(id, callback.secret) },
    };
    const outcome = await batches.submitBatch(batch);
    switch (outcome.kind) {
      case 'created':
        onSubmitted();
        return { batch: outcome.batch, created: true };
      case 'exists':
        return existing(outcome.batch, fingerprint);
      case 'key-of-a-job':
        throw keyConflict(outcome.jobId);
      case 'key-cap-reached':
        throw new ContractError('KEY_CAP_REACHED', outcome.detail);
      case 'too-many-open': {
        const detail = `The account already has ${OPEN_BATCHES_MAX} open batches. Wait until one is finished.`;
        throw new ContractError('RATE_LIMITED', detail, { retryAfterS: OPEN_RETRY_AFTER_S });
      }
      case 'key-revoked':
        throw new ContractError('INVALID_API_KEY', 'The API key was revoked. Send another key.');
      case 'insufficient-credits':
        throw noCredit(sells, items.length);
    }
  }

  async #requireFields({ shared, items: given }: BatchFields) {
    const { fieldPolicy } = this.#dependencies;
    const items: { readonly imageUrl: string; readonly reference: string | null }[] = [];
    const turns = new Turns();
    for (const [index, { imageUrl, reference }] of given.entries()) {
      await turns.before(bytesOfText(imageUrl) / 2);
      const item = underPath(`items[${index}]`, () => ({
        imageUrl: requireUrl(imageUrl, fieldPolicy),
        reference: requireReference(reference) ?? null,
      }));
      items.push(item);
    }
    const texts = new Map([...shared, ['image_url' as const, items[0]!.imageUrl]]);
    const request = requireMattingRequest({ texts, imageGiven: false }, fieldPolicy);
    return { request, items };
  }

  async #requireAccepting(caller: Caller, request: MattingRequest): Promise<void> {
    const { acceptance, models, callbackAddresses } = this.#dependencies;
    const { callback, model } = request;
    models.require(model, caller.policy);
    acceptance.requireAble({ ...request, background: { input: null } }, undefined);
    await callbackAddresses.requireOf(callback, caller.accountId);
  }
}

function existing(batch: Batch, fingerprint: string) {
  if (batch.fingerprint !== fingerprint) throw keyConflict(undefined);
  return { batch, created: false };
}

/** The kind comes first. References are no part of the fingerprint. */
function fingerprintOfBatch(
  { callback, ...request }: MattingRequest,
  items: readonly { readonly imageUrl: string }[],
): string {
  const { backgroundUrl } = request;
  const common = fingerprintOf({
    ...request,
    source: { url: '' },
    background: backgroundUrl === undefined ? undefined : { url: backgroundUrl },
    callback,
  });
  const urls = items.map(({ imageUrl }) => `${Buffer.byteLength(imageUrl)}:${imageUrl}\n`);
  return hash('sha256', `kind:5:batch\n${common}\n${urls.join('')}`, 'hex');
}
