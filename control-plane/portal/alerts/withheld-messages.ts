/** What becomes known of messages that an account may not send any more today. */
import type { Logger } from 'pino';
import type { Withheld } from './message-counts.ts';
import type { WithheldReason } from './message-limits.ts';

export type OnWithheld = (accountId: string, withheld: Withheld) => void;

/** Each is counted; the log says it once a day of an account, and of an address without naming it. */
export function withheldTeller(
  observer: { messageWithheld(reason: WithheldReason): void },
  log: Pick<Logger, 'warn'>,
): OnWithheld {
  return (accountId, { reason, isFirst }) => {
    observer.messageWithheld(reason);
    if (isFirst) log.warn({ accountId, reason }, 'messages are withheld until tomorrow');
  };
}
