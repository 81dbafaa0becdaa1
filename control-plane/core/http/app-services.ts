/** The use cases behind the public port, as its routes are given them. */

import type { ManageAlerts } from '../../portal/alerts/manage-alerts.ts';
import type { AccountJobs } from '../../portal/jobs/account-jobs.ts';
import type { LedgerHistory } from '../../portal/orders/ledger-history.ts';
import type { Orders } from '../../portal/orders/orders.ts';
import type { ReceivePayment } from '../../portal/orders/receive-payment.ts';
import type { Links } from '../../portal/people/links.ts';
import type { Profile } from '../../portal/people/profile.ts';
import type { UsePlayground } from '../../portal/playground/use-playground.ts';
import type { ProviderSignIn } from '../../portal/sign-in/provider-sign-in.ts';
import type { Sessions, SignIn } from '../../portal/sign-in/sign-in.ts';
import type { Overview, ReadUsage } from '../../portal/usage/read-usage.ts';
import type { Authenticator, ReadAccount } from '../accounts/account.ts';
import type { OperateAccounts } from '../accounts/operate-accounts.ts';
import type { ReadQueue } from '../dispatch/read-queue.ts';
import type { OperateJobs } from '../jobs/operate-jobs.ts';
import type { KeyUses } from '../keys/authenticate.ts';
import type { ManageKeys } from '../keys/manage-keys.ts';
import type { OperateCredits } from '../ledger/operate-credits.ts';
import type { OperateNodes } from '../nodes/operate-nodes.ts';
import type { RateLimits } from '../rates/rate-limits.ts';
import type { Readiness } from '../readiness.ts';
import type { JobViews, ReadJob } from '../results/job-view.ts';
import type { ResultDownload, ResultReaders } from '../results/result-download.ts';
import type { WaitForJob } from '../results/wait-for-job.ts';
import type { Stores } from '../stores.ts';
import type { SubmitMatting } from '../submission/submit-matting.ts';
import type { ImageUploads } from '../submission/submit-upload.ts';
import type { OperateWebhooks } from '../webhooks/operate-webhooks.ts';

/** Behind the public port. */
export interface AppServices {
  readonly authenticator: Authenticator;
  readonly keyUses: KeyUses;
  readonly rateLimits: RateLimits;
  readonly uploads: ImageUploads;
  readonly submitMatting: SubmitMatting;
  readonly waitForJob: WaitForJob;
  readonly readJob: ReadJob;
  readonly jobViews: JobViews;
  readonly resultDownload: ResultDownload;
  readonly resultReaders: ResultReaders;
  readonly readAccount: ReadAccount;
  readonly readUsage: ReadUsage;
  readonly readiness: { check(): Promise<Readiness>; readonly draining: boolean };
  readonly accountArea: AccountAreaServices;
  /** Undefined: nobody tells of payments. */
  readonly receivePayment: ReceivePayment | undefined;
}

export interface AccountAreaServices {
  readonly accountJobs: AccountJobs;
  readonly alerts: ManageAlerts;
  readonly ledgerHistory: LedgerHistory;
  readonly links: Links;
  readonly manageKeys: ManageKeys;
  readonly orders: Orders;
  readonly overview: Overview;
  readonly playground: UsePlayground;
  readonly profile: Profile;
  /** Undefined: people sign in by passwords alone. */
  readonly provider: ProviderSignIn | undefined;
  readonly readUsage: ReadUsage;
  readonly resultDownload: ResultDownload;
  readonly resultReaders: ResultReaders;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  /** What people read and change without a rule besides the store's own. */
  readonly stores: Pick<Stores, 'audit' | 'links' | 'people' | 'sessions'>;
}

/** Behind the operator's port. */
export interface OperatorServices {
  readonly operateAccounts: OperateAccounts;
  readonly operateCredits: OperateCredits;
  readonly operateJobs: OperateJobs;
  readonly operateNodes: OperateNodes;
  readonly operateWebhooks: OperateWebhooks;
  readonly readQueue: ReadQueue;
}
