import type { Caller } from '@matting/accounts/keys/caller.ts';
import type { TextValue } from '@matting/http/body-fields.ts';
import type { CallbackAddressCheck } from '../fetching/callback-check.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { Queue } from '../queue/queue.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import type { AcceptanceGate } from './acceptance-gate.ts';
import { fingerprintOf, idempotencyKeyHash } from './fingerprint.ts';
import { requireImageUrl } from './image-url.ts';
import {
  type FieldPolicy,
  type MattingFields,
  type MattingRequest,
  requireCallback,
  requireMattingRequest,
  requireReference,
} from './matting-request.ts';
import { keyConflict, noCredit, templateOf } from './submit-matting.ts';

interface ManyJobsParts {
  readonly queue: Pick<Queue, 'findByKey'>;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble'>;
  readonly models: Pick<OfferedModels, 'require'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'requireOf'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly fieldPolicy: FieldPolicy;
  readonly sells: boolean;
}

type ManyRequest = Omit<MattingRequest, 'imageUrl' | 'reference' | 'backgroundUrl'>;

export type ManyJobs = ReturnType<typeof manyJobs>;

export function manyJobs({ queue, fieldPolicy, sells, ...parts }: ManyJobsParts) {
  return {
    requireItem: (item: { imageUrl: TextValue; reference: TextValue | undefined }) => ({
      imageUrl: requireImageUrl(item.imageUrl, fieldPolicy),
      reference: requireReference(item.reference) ?? null,
    }),
    requireName: (text: TextValue | undefined) => requireReference(text, 'name') ?? null,
    requireCallback: (texts: MattingFields['texts']) => requireCallback(texts, fieldPolicy),
    /** @param texts the common fields and first image_url. @throws ContractError of the field */
    requireRequest: (texts: MattingFields['texts']) =>
      requireMattingRequest({ texts, imageGiven: false }, fieldPolicy),
    fingerprintOf: ({ callback, backgroundUrl, ...request }: MattingRequest) =>
      fingerprintOf({
        ...request,
        source: { url: '' },
        background: backgroundUrl === undefined ? undefined : { url: backgroundUrl },
        callback,
      }),
    hashOf: idempotencyKeyHash,
    templateOf: (request: MattingRequest) => JSON.stringify(templateOf(request, null)),
    requestOf: (template: string): Omit<ManyRequest, 'callback'> => JSON.parse(template),
    callbackOf: (id: string, { callback }: Pick<MattingRequest, 'callback'>) =>
      callback && { url: callback.url, ...parts.callbackSecrets.seal(id, callback.secret) },
    /** @throws ContractError IDEMPOTENCY_CONFLICT: the key made a job */
    async requireFreeKey(apiKeyId: string, keyHash: string): Promise<void> {
      const job = await queue.findByKey(apiKeyId, { hash: keyHash });
      if (job !== undefined) throw keyConflict(job.id);
    },
    /** @throws ContractError: no node can do the request, or the callback is unreachable */
    async requireAccepting(
      caller: Pick<Caller, 'accountId' | 'policy'>,
      request: ManyRequest,
    ): Promise<void> {
      parts.models.require(request.model, caller.policy);
      parts.acceptance.requireAble({ ...request, background: { input: null } }, undefined);
      await parts.callbackAddresses.requireOf(request.callback, caller.accountId);
    },
    keyConflict: (jobId?: string) => keyConflict(jobId),
    noCredit: (images: number) => noCredit(sells, images),
  };
}
