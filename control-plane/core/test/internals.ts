/** Tests of other packages look into the core by these; what runs cannot. */

export { type DrainSteps, drainControlPlane } from '../drain.ts';
export { CallbackAddressCheck } from '../fetching/callback-check.ts';
export {
  capCountAt,
  capResetsAtMs,
  countOfNewCap,
  type KeyCap,
  takeOfCap,
} from '../keys/key-policy.ts';
export { OfferedModels } from '../models/offered-models.ts';
export { RATE_WINDOW_MS } from '../rates/rate-windows.ts';
export { WaitForJob } from '../results/wait-for-job.ts';
export { Sweeper } from '../retention/sweep.ts';
export {
  loadOrCreateSecretsKey,
  requireSameSecretsKey,
  SecretsKeyError,
} from '../secrets/secrets-key.ts';
export { WRITE_BYTES } from '../submission/image-upload.ts';
export { TEXT_BYTES_MAX, UPLOADS_MAX, UPLOADS_WAITING_MAX } from '../submission/image-uploads.ts';
export type { NewJob, SubmitOutcome } from '../transactions/job-submission.ts';
export type { MessageClaim } from '../webhooks/deliver-messages.ts';
