/** The mail that brings an invitation: in both languages, since nobody knows yet which is read. */
import { randomUUID } from 'node:crypto';
import type { NewMail } from '../../store/alerts/mail-rows.ts';

export function invitationLetter(of: {
  readonly accountId: string;
  readonly accountName: string;
  readonly mail: string;
  readonly url: string;
  readonly days: number;
}): NewMail {
  const { accountId, accountName, mail, url, days } = of;
  const body = [
    `You are invited to the account ${accountName}. This link works once, within ${days} days:`,
    `您受邀加入账户 ${accountName}。此链接仅能使用一次，${days} 天内有效：`,
    url,
    'If you expected no invitation, ignore this mail.\n如果这不是您预期的邀请，请忽略此邮件。',
  ].join('\n\n');
  const subject = `Invitation to ${accountName} / 账户邀请`;
  return { id: randomUUID(), accountId, recipient: mail, subject, body: `${body}\n` };
}
