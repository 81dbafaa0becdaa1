/** The use cases behind the account area, as its pages are given them. */
import type { ManageKeys } from '../core/keys/manage-keys.ts';
import type { ResultDownload, ResultReaders } from '../core/results/result-download.ts';
import type { Stores } from '../core/stores.ts';
import type { ManageAlerts } from './alerts/manage-alerts.ts';
import type { AccountJobs } from './jobs/account-jobs.ts';
import type { LedgerHistory } from './orders/ledger-history.ts';
import type { Orders } from './orders/orders.ts';
import type { Links } from './people/links.ts';
import type { Profile } from './people/profile.ts';
import type { UsePlayground } from './playground/use-playground.ts';
import type { PortalStores } from './portal-stores.ts';
import type { ProviderSignIn } from './sign-in/provider-sign-in.ts';
import type { Sessions } from './sign-in/session-store.ts';
import type { SignIn } from './sign-in/sign-in.ts';
import type { Overview, ReadUsage } from './usage/read-usage.ts';

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
  readonly stores: Pick<Stores & PortalStores, 'audit' | 'links' | 'people' | 'sessions'>;
}
