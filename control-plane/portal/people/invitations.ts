/** Links that the service makes: an owner's invitation, and what the operator's commands print. */

import { randomUUID } from 'node:crypto';
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { Withheld } from '../mails/messages.ts';
import type { OnWithheld } from '../mails/owners-mails.ts';
import type { Role } from '../session/roles.ts';
import { createSecret, hashOfSecret } from '../session/secret.ts';
import type { LinkPurpose, LinkStore } from './link-store.ts';

export const HOUR_MS = 3_600_000;
/** The time suffices for somebody who is away for a few days. */
const INVITATION_MS = 7 * DAY_MS;
/** A terminal prints this link, and people use it from there. */
const SIGN_IN_LINK_MS = 12 * HOUR_MS;

export interface MadeLink {
  readonly url: string;
  readonly lifeMs: number;
}

type LinkRefusal = 'too-many' | Withheld;

/**
 * Makes a link; its token is in the URL this once and nowhere else. The account must exist.
 * @param mail of parseMail
 * @returns too-many: the account has as many open invitations as it may
 */
export async function createLink(
  links: Pick<LinkStore, 'create'>,
  baseUrl: string,
  of: {
    readonly accountId: string;
    readonly mail: string;
    readonly role: Role;
    readonly purpose: LinkPurpose;
    readonly letterOf?: LetterOf | undefined;
  },
  actor: Actor,
): Promise<MadeLink | LinkRefusal> {
  const token = createSecret();
  const isInvitation = of.purpose === 'invitation';
  const lifeMs = isInvitation ? INVITATION_MS : SIGN_IN_LINK_MS;
  const tokenHash = hashOfSecret(token);
  const { letterOf, ...named } = of;
  const id = randomUUID();
  const url = `${baseUrl}/account/${isInvitation ? 'invitations' : 'links'}/${token}`;
  const letter = letterOf && linkLetter({ ...of, id, letterOf, url, lifeMs });
  // The operator hands a link over in person; an owner sees an invitation that no mail brings.
  const provesMail = letter !== undefined || actor.kind === 'operator';
  const made = { id, entryId: randomUUID(), tokenHash, lifeMs };
  const messagesMax = letterOf?.messagesMax;
  const link = { ...made, provesMail, letter, messagesMax, ...named };
  const outcome = await links.create(link, actor);
  return outcome === 'created' ? { url, lifeMs } : outcome;
}

interface InvitationParts {
  readonly links: Pick<LinkStore, 'create'>;
  readonly baseUrl: string;
  readonly mails: boolean;
  readonly sealMail: LetterOf['seal'];
  /** An account may send this many messages a day. */
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
}

export class Invitations {
  readonly #parts: InvitationParts;

  constructor(parts: InvitationParts) {
    this.#parts = parts;
  }

  /** Whether invitations go by mail, so that nobody else sees them. */
  get byMail(): boolean {
    return this.#parts.mails;
  }

  /**
   * too-many: the account has as many open ones as it may; a reason: mails of today are used up.
   * Nothing was made then. @param mail of parseMail @returns url undefined: it goes by mail, and
   * nobody else sees it
   */
  async invite(
    accountId: string,
    of: { readonly mail: string; readonly role: Role; readonly accountName: string },
    actor: Actor,
  ) {
    const { links, baseUrl, mails, sealMail: seal, messagesMax } = this.#parts;
    const { accountName, ...whom } = of;
    const letterOf = mails ? { accountName, seal, messagesMax } : undefined;
    const link = { accountId, ...whom, letterOf, purpose: 'invitation' } as const;
    const made = await createLink(links, baseUrl, link, actor);
    if (made === 'too-many') return made;
    if ('reason' in made) {
      this.#parts.onWithheld(accountId, made);
      return made.reason;
    }
    return { lifeMs: made.lifeMs, url: mails ? undefined : made.url };
  }
}

/** A mail with the link is made of these parts. */
interface LetterOf {
  readonly accountName: string;
  /** @param id that of the mail, which the text is bound to */
  readonly seal: (text: string, id: string) => string;
  /** The account sends this many mails a day; absent: the operator sends it. */
  readonly messagesMax?: number;
}

function linkLetter(of: {
  /** The link has the same id, so that the mail is withdrawn with it. */
  readonly id: string;
  readonly accountId: string;
  readonly purpose: LinkPurpose;
  readonly letterOf: LetterOf;
  readonly mail: string;
  readonly url: string;
  readonly lifeMs: number;
}): NewMail {
  const { id, accountId, purpose, letterOf, mail, url, lifeMs } = of;
  const { accountName: name, seal } = letterOf;
  const days = lifeMs / DAY_MS;
  const hours = lifeMs / HOUR_MS;
  const [subject, ...text] =
    purpose === 'invitation'
      ? [
          `Invitation to ${name} / 账户邀请`,
          `You are invited to the account ${name}. Use this link once, within ${days} days:`,
          `您受邀加入账户 ${name}。此链接仅能使用一次，${days} 天内有效：`,
          url,
          'If you did not expect this invitation, ignore this email.\n如果这不是您预期的邀请，请忽略此邮件。',
        ]
      : [
          `Sign in to ${name} / 登录链接`,
          `This link signs you in to the account ${name}. It works once, within ${hours} hours:`,
          `此链接可登录账户 ${name}，仅能使用一次，${hours} 小时内有效：`,
          url,
          'If you did not ask for this link, tell the operator of this service.\n如果您没有索取此链接，请告知服务运营者。',
        ];
  const body = seal(`${text.join('\n\n')}\n`, id);
  return { id, accountId, recipient: mail, subject, body };
}
