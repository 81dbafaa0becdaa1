/** For tests of other packages only. */

export {
  capCountAt,
  capResetsAtMs,
  countOfNewCap,
  type KeyCap,
  takeOfCap,
} from '@matting/accounts/keys/key-policy.ts';
export { balancesFrom, imbalances, isReservedReference } from '@matting/accounts/ledger/ledger.ts';
export { RATE_WINDOW_MS } from '@matting/accounts/rates/rate-windows.ts';
export type { Claim } from '@matting/queue/lease-rules.ts';
export type { SubmitOutcome } from '@matting/queue/submit-job.ts';
export { jobProblem } from '../audit/job-problem.ts';
export { type DrainSteps, drainControlPlane } from '../drain.ts';
export { CallbackAddressCheck } from '../fetching/callback-check.ts';
export { backgroundBlob, thumbnailBlob } from '../jobs/blob-names.ts';
export { OfferedModels } from '../models/offered-models.ts';
export type { ControlPlane } from '../open-core.ts';
export { migrationsOf } from '../package.ts';
export type { NewJob } from '../queue/matting-submission.ts';
export { WaitForJob } from '../results/wait-for-job.ts';
export { Sweeper } from '../retention/sweep.ts';
export {
  loadOrCreateSecretsKey,
  requireSameSecretsKey,
  SecretsKeyError,
} from '../secrets/secrets-key.ts';
export type { Stores } from '../stores.ts';
export { WRITE_BYTES } from '../submission/image-upload.ts';
export { TEXT_BYTES_MAX, UPLOADS_MAX, UPLOADS_WAITING_MAX } from '../submission/image-uploads.ts';
export type { MessageClaim } from '../webhooks/deliver-messages.ts';
