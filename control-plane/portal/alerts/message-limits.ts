/**
 * What an account sends a day (UTC) in the operator's name: mails to its owners and to whom it
 * invites, and events to its own address, counted apart. Whoever is written to gets no more than
 * RECIPIENT_MAILS_MAX of all accounts, and half of them of one: none closes an address to the
 * others. The operator's own mails are not counted. Pure.
 */
import { mailKeyOf } from '../people/mail-address.ts';

/** Mails of an account, and events, unless the operator sets another number. */
export const ACCOUNT_MAILS_DEFAULT = 100;
export const ACCOUNT_MAILS_MAX = 1_000_000;
/** Mails to one address. */
export const RECIPIENT_MAILS_MAX = 20;
/** Of them, from one account. */
export const RECIPIENT_ACCOUNT_MAILS_MAX = RECIPIENT_MAILS_MAX / 2;

export type Message =
  | { readonly kind: 'mail'; readonly recipient: string }
  /** To the address that the account's owners set. */
  | { readonly kind: 'event' };

export const WITHHELD_REASONS = ['account', 'recipient'] as const;
/** Whose messages of the day are used up. */
export type WithheldReason = (typeof WITHHELD_REASONS)[number];

/** Something that is counted, and how far. */
export interface MessageCount {
  readonly name: string;
  readonly max: number;
  readonly reason: WithheldReason;
}

/** What a message of an account is counted by; it is sent where none of them is at its end. */
export function countsOf(accountId: string, message: Message, max: number): MessageCount[] {
  const { kind } = message;
  const ofAccount: MessageCount = { name: `${kind} of ${accountId}`, max, reason: 'account' };
  if (kind === 'event') return [ofAccount];
  const to = addresseeOf(message.recipient);
  const reason = 'recipient';
  return [
    ofAccount,
    { name: `mail of ${accountId} to ${to}`, max: RECIPIENT_ACCOUNT_MAILS_MAX, reason },
    { name: `mail to ${to}`, max: RECIPIENT_MAILS_MAX, reason },
  ];
}

/** Subaddresses (RFC 5233), ann+shop@ and ann+work@, are read by one person: they count as ann@. */
function addresseeOf(mail: string): string {
  return mailKeyOf(mail).replace(/^([^+@]+)\+[^@]*@/, '$1@');
}

/** @param used before, by name; where there is none nothing was sent */
export function takeMessages(
  messages: readonly (readonly MessageCount[])[],
  used: ReadonlyMap<string, number>,
): {
  /** In the order of the messages: what keeps one back; undefined: it is sent. */
  readonly withheldBy: readonly (MessageCount | undefined)[];
  /** After those that are sent. */
  readonly used: ReadonlyMap<string, number>;
} {
  const after = new Map(used);
  const of = (count: MessageCount) => after.get(count.name) ?? 0;
  const withheldBy = messages.map(counts => {
    const full = counts.find(count => of(count) >= count.max);
    if (full === undefined) for (const count of counts) after.set(count.name, of(count) + 1);
    return full;
  });
  return { withheldBy, used: after };
}
