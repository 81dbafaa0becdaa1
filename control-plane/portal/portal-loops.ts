/** What the portal does unasked: watches balances, and sends mails where there is a mail server. */
import {
  BalanceWatch,
  type BalanceWatchDependencies,
  withheldTeller,
} from './alerts/balance-watch.ts';
import { type MailDeliveryParts, mailDelivery, SmtpSender } from './alerts/send-mails.ts';

type Watched = BalanceWatchDependencies;
type Sent = MailDeliveryParts;

export interface PortalLoopParts {
  readonly config: {
    readonly baseUrl: string;
    /** Undefined: no mail is sent. */
    readonly mail: ConstructorParameters<typeof SmtpSender>[0] | undefined;
    /** Messages of an account a day. */
    readonly accountMails: number;
  };
  readonly stores: {
    readonly alerts: Watched['alerts'];
    readonly alertSettings: Watched['settings'];
    readonly outbox: Sent['outbox'];
  };
  readonly secrets: Watched['secrets'] & Sent['secrets'];
  readonly observer: Watched['observer'] & Sent['observer'] & Parameters<typeof withheldTeller>[0];
  readonly log: Watched['log'] & Sent['log'];
  readonly holder: string;
}

export function portalLoops({ config, stores, ...parts }: PortalLoopParts) {
  const { secrets, observer, log, holder } = parts;
  const { mail, baseUrl, accountMails: messagesMax } = config;
  const watch = new BalanceWatch({
    alerts: stores.alerts,
    settings: stores.alertSettings,
    ...{ secrets, observer, log, messagesMax },
    mails: mail !== undefined,
    pageUrl: `${baseUrl}/account`,
    onWithheld: withheldTeller(observer, log),
  });
  // What waits where there is no mail server is left to a replica that has one.
  if (mail === undefined) return [watch.loop];
  const sender = new SmtpSender(mail);
  const { outbox } = stores;
  return [watch.loop, mailDelivery({ sender, outbox, secrets, observer, log, holder })];
}
