import type { Authenticator, Caller, ReadAccount } from '@matting/accounts/keys/caller.ts';
import type { KeyUses } from '@matting/accounts/keys/key-uses.ts';
import type { RateLimits } from '@matting/accounts/rates/rate-limits.ts';
import type { DeleteJob } from '../deletion/delete-job.ts';
import type { Job } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { OperateAccounts } from '../operator/operate-accounts.ts';
import type { OperateCredits } from '../operator/operate-credits.ts';
import type { OperateJobs, ReadQueue } from '../operator/operate-jobs.ts';
import type { OperateNodes } from '../operator/operate-nodes.ts';
import type { OperateWebhooks } from '../operator/operate-webhooks.ts';
import type { JobViews } from '../results/job-view.ts';
import type { ResultDownload, ResultReaders } from '../results/result-download.ts';
import type { WaitForJob } from '../results/wait-for-job.ts';
import type { ImageUploads } from '../submission/image-uploads.ts';
import type { ManyJobs } from '../submission/many-jobs.ts';
import type { SubmitMatting } from '../submission/submit-matting.ts';
import type { Readiness } from './readiness.ts';

export interface AppServices {
  readonly authenticator: Authenticator;
  readonly keyUses: KeyUses;
  readonly rateLimits: RateLimits;
  readonly uploads: ImageUploads;
  readonly submitMatting: SubmitMatting;
  readonly waitForJob: WaitForJob;
  readonly readJob: (caller: Caller, jobId: string) => Promise<Job>;
  readonly listJobs: JobStore['listOfKey'];
  readonly deleteJob: Pick<DeleteJob, 'delete'>;
  readonly manyJobs: ManyJobs;
  readonly jobViews: JobViews;
  readonly resultDownload: ResultDownload;
  readonly resultReaders: ResultReaders;
  readonly models: Pick<OfferedModels, 'list'>;
  readonly readAccount: ReadAccount;
  readonly readiness: { check(): Promise<Readiness>; readonly draining: boolean };
}

export interface OperatorServices {
  readonly operateAccounts: OperateAccounts;
  readonly operateCredits: OperateCredits;
  readonly operateJobs: OperateJobs;
  readonly operateNodes: OperateNodes;
  readonly operateWebhooks: OperateWebhooks;
  readonly readQueue: ReadQueue;
}
