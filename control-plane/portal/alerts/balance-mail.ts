/** The mail that tells an owner of a low balance, in the languages of the account area. Pure. */
import type { LowBalance } from './balance-alerts.ts';

export interface MailText {
  readonly subject: string;
  readonly text: string;
}

/** Code points of an account's name in a subject; longer ones are cut. */
const NAME_LENGTH_MAX = 60;

/**
 * @param language of the owner; null or another: English
 * @param pageUrl where credits are ordered
 */
export function lowBalanceMail(
  low: LowBalance,
  language: string | null,
  pageUrl: string,
): MailText {
  const { accountName, threshold, balances } = low;
  const name = [...accountName.replaceAll(/\p{Cc}/gu, ' ')].slice(0, NAME_LENGTH_MAX).join('');
  const chinese = language === 'zh-CN';
  const number = new Intl.NumberFormat(chinese ? 'zh-CN' : 'en');
  const available = number.format(balances.available);
  const reserved = number.format(balances.reserved);
  const limit = number.format(threshold);
  if (chinese) {
    return {
      subject: `${name}：剩余 ${available} 积分`,
      text: [
        `账户“${name}”的可用积分已降至 ${available}，达到您设定的提醒值 ${limit}。`,
        `另有 ${reserved} 积分为进行中的任务预留。`,
        '积分用完后，新的图片会被拒绝（INSUFFICIENT_CREDITS）；已提交的任务不受影响。',
        '',
        `购买积分：${pageUrl}/credits`,
        `更改提醒：${pageUrl}/settings`,
        '',
      ].join('\n'),
    };
  }
  return {
    subject: `${name}: ${available} credits left`,
    text: [
      `The account "${name}" has ${available} credits left. You asked to be told at ${limit}.`,
      `Besides, ${reserved} are reserved for jobs under way.`,
      'Without credits new images are refused (INSUFFICIENT_CREDITS); jobs under way go on.',
      '',
      `Buy credits: ${pageUrl}/credits`,
      `Change what you are told: ${pageUrl}/settings`,
      '',
    ].join('\n'),
  };
}
