/** The use cases behind the public port, as its routes are given them. */

import type { Authenticator, ReadAccount } from '../services/account.ts';
import type { AccountJobs } from '../services/account-jobs/account-jobs.ts';
import type { ManageAlerts } from '../services/alerts/manage-alerts.ts';
import type { KeyUses } from '../services/keys/key-uses.ts';
import type { ManageKeys } from '../services/keys/manage-keys.ts';
import type { OperateAccounts } from '../services/operator/operate-accounts.ts';
import type { OperateCredits } from '../services/operator/operate-credits.ts';
import type { OperateJobs } from '../services/operator/operate-jobs.ts';
import type { OperateNodes } from '../services/operator/operate-nodes.ts';
import type { OperateWebhooks } from '../services/operator/operate-webhooks.ts';
import type { ReadQueue } from '../services/operator/read-queue.ts';
import type { Links } from '../services/people/links.ts';
import type { Profile } from '../services/people/profile.ts';
import type { ProviderSignIn } from '../services/people/provider-sign-in.ts';
import type { Sessions, SignIn } from '../services/people/sign-in.ts';
import type { UsePlayground } from '../services/playground/use-playground.ts';
import type { RateLimits } from '../services/rate-limits.ts';
import type { Readiness } from '../services/readiness.ts';
import type { JobViews, ReadJob } from '../services/reading/job-view.ts';
import type { ResultDownload, ResultReaders } from '../services/reading/result-download.ts';
import type { WaitForJob } from '../services/reading/wait-for-job.ts';
import type { RemoveBackground } from '../services/removebg/remove-background.ts';
import type { LedgerHistory } from '../services/sales/ledger-history.ts';
import type { OperateOrders } from '../services/sales/operate-orders.ts';
import type { Orders } from '../services/sales/orders.ts';
import type { ReceivePayment } from '../services/sales/receive-payment.ts';
import type { SubmitMatting } from '../services/submission/submit-matting.ts';
import type { ImageUploads } from '../services/submission/submit-upload.ts';
import type { Overview, ReadUsage } from '../services/usage/read-usage.ts';
import type { Stores } from '../store/stores.ts';

/** Behind the public port. */
export interface AppServices {
  readonly authenticator: Authenticator;
  readonly keyUses: KeyUses;
  readonly rateLimits: RateLimits;
  readonly uploads: ImageUploads;
  readonly submitMatting: SubmitMatting;
  readonly removeBackground: RemoveBackground;
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

/** Behind the operator's port, as JSON and as pages. */
export interface OperatorServices {
  readonly operateAccounts: OperateAccounts;
  readonly operateCredits: OperateCredits;
  readonly operateJobs: OperateJobs;
  readonly operateNodes: OperateNodes;
  readonly operateOrders: OperateOrders;
  readonly operateWebhooks: OperateWebhooks;
  readonly readQueue: ReadQueue;
}
