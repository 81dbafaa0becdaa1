/** Makes invitations, and the links that the operator's commands print. */

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
/** Enough for somebody who is away for a few days. */
const INVITATION_MS = 7 * DAY_MS;
const SIGN_IN_LINK_MS = 12 * HOUR_MS;

export interface MadeLink {
  readonly url: string;
  readonly lifeMs: number;
}

type LinkRefusal = 'too-many' | Withheld;

/**
 * Makes a link for an existing account. Its token is only in the returned URL.
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
  // An owner sees the link of an invitation that is not mailed, so it proves nothing. The operator
  // hands a link over in person.
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
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
}

export class Invitations {
  readonly #parts: InvitationParts;

  constructor(parts: InvitationParts) {
    this.#parts = parts;
  }

  get byMail(): boolean {
    return this.#parts.mails;
  }

  /**
   * A refusal makes nothing. too-many: the bound of open invitations; a reason: today's mails are
   * used up.
   * @param mail of parseMail
   * @returns url undefined: only the mail has it
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

interface LetterOf {
  readonly accountName: string;
  /** @param id the mail's. The encrypted text is bound to it. */
  readonly seal: (text: string, id: string) => string;
  readonly messagesMax?: number;
}

function linkLetter(of: {
  /** Equal to the link's id, so that a withdrawal stops the mail, too. */
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
