/** Makes the playground of the account area, and its view of jobs. Opens nothing. */
import type { Config } from './config.ts';
import { AccountJobs } from './services/account-jobs/account-jobs.ts';
import type { JobEvents } from './services/job-events.ts';
import { OperateWebhooks } from './services/operator/operate-webhooks.ts';
import { UsePlayground } from './services/playground/use-playground.ts';
import type { ResultDownload } from './services/reading/result-download.ts';
import type { ResultReaders } from './services/reading/result-readers.ts';
import type { AcceptanceGate } from './services/submission/acceptance.ts';
import type { ImageUploads } from './services/submission/submit-upload.ts';
import type { BlobStore } from './storage/blob-store.ts';
import type { Stores } from './store/stores.ts';

export interface PlaygroundParts {
  readonly config: Config;
  readonly stores: Stores;
  readonly blobs: BlobStore;
  readonly events: JobEvents;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireRoom'>;
  readonly readiness: { readonly draining: boolean };
}

/** What it shares with the API. */
export interface SharedServices {
  readonly uploads: ImageUploads;
  readonly resultDownload: ResultDownload;
  readonly resultReaders: ResultReaders;
}

export function composePlayground(
  { config, stores, blobs, events, acceptance, readiness }: PlaygroundParts,
  { uploads, resultDownload, resultReaders }: SharedServices,
) {
  const playground = new UsePlayground({
    playground: stores.playground,
    jobs: stores.jobs,
    blobs,
    uploads,
    events,
    acceptance,
    isDraining: () => readiness.draining,
    imagesMax: config.accountArea?.playgroundImages ?? 0,
    fieldPolicy: config,
  });
  const accountJobs = new AccountJobs({
    jobs: stores.jobs,
    apiKeys: stores.apiKeys,
    playground: stores.playground,
    webhookOutbox: stores.webhookOutbox,
    operateWebhooks: new OperateWebhooks(stores),
  });
  return { playground, accountJobs, resultDownload, resultReaders };
}
