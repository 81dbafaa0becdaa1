/**
 * Notifies owners of low balances by mail and by an event. Every replica polls, a page at a time,
 * and alert-store.ts lets one of them queue a notice. No submission waits for this.
 */
import { randomUUID } from 'node:crypto';
import { type CallbackSecrets, notificationBody } from '@matting/core/secrets/secret-box.ts';
import type { NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import type { Logger } from 'pino';
import { type MailText, nameInMail, type OnWithheld, ownersMails } from '../mails/owners-mails.ts';
import { type AlertSettingsStore, accountSecretId } from './alert-settings.ts';
import {
  type AlertCursor,
  type AlertStore,
  alertStep,
  FIRST_ALERT,
  type LowBalance,
  type LowBalanceNotice,
  lowBalanceBody,
  type SeenAlert,
} from './alert-store.ts';

/** @param language null or unknown: English. @param pageUrl for ordering credits */
export function lowBalanceMail(
  low: LowBalance,
  language: string | null,
  pageUrl: string,
): MailText {
  const { accountName, threshold, balances } = low;
  const name = nameInMail(accountName);
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
      `The account "${name}" has ${available} credits left. You set an alert at ${limit}.`,
      `Another ${reserved} credits are reserved for jobs in progress.`,
      'At 0 credits, new images fail with INSUFFICIENT_CREDITS. Jobs in progress still finish.',
      '',
      `Buy credits: ${pageUrl}/credits`,
      `Change your alerts: ${pageUrl}/settings`,
      '',
    ].join('\n'),
  };
}

const POLL_MS = 5000;
const PAGE_ROWS = 200;
/** Pages of one round: after 2000 thresholds the next round continues. */
const PAGES_MAX = 10;
/** Secrets of addresses that one round encrypts again after a change of the key. */
const RESEALED_MAX = 50;

interface BalanceWatchDependencies {
  readonly alerts: AlertStore;
  readonly settings: Pick<AlertSettingsStore, 'webhook' | 'listSealedWithOthers' | 'reseal'>;
  readonly secrets: Pick<CallbackSecrets, 'rebind' | 'sealText' | 'keyId'>;
  readonly mails: boolean;
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
  readonly pageUrl: string;
  readonly observer: { balanceNotified(): void };
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
}

export class BalanceWatch {
  readonly #dependencies: BalanceWatchDependencies;
  readonly loop = pollingLoop(
    POLL_MS,
    () => this.poll(),
    err => this.#dependencies.log.warn({ err }, 'balances were not looked at'),
  );
  #cursor: AlertCursor = FIRST_ALERT;

  constructor(dependencies: BalanceWatchDependencies) {
    this.#dependencies = dependencies;
  }

  async poll(): Promise<void> {
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const seen = await this.#dependencies.alerts.readPage(this.#cursor, PAGE_ROWS);
      for (const alert of seen) await this.#step(alert);
      const last = seen.at(-1);
      const atEnd = last === undefined || seen.length < PAGE_ROWS;
      this.#cursor = atEnd ? FIRST_ALERT : last;
      if (!atEnd) continue;
      await this.#sealAnew();
      return;
    }
  }

  async #step(alert: SeenAlert): Promise<void> {
    const { alerts, observer, onWithheld, log } = this.#dependencies;
    const step = alertStep(alert, alert.balances, alert.seenAtMs);
    if (step === 'arm') await alerts.arm(alert);
    if (step !== 'notify') return;
    const notice = await this.#noticeOf(alert);
    const queued = await alerts.queue(notice);
    if (queued === undefined) return;
    const { accountId, threshold } = alert;
    for (const withheld of queued.withheld) onWithheld(accountId, withheld);
    if (queued.mails === 0 && !queued.event) return;
    observer.balanceNotified();
    const { eventId } = notice;
    const sent = { mails: queued.mails, webhook: queued.event };
    log.info({ accountId, threshold, ...sent, eventId }, 'a low balance notice was queued');
  }

  async #noticeOf(alert: SeenAlert): Promise<LowBalanceNotice> {
    const eventId = randomUUID();
    const event = await this.#eventOf(alert, eventId);
    const { messagesMax } = this.#dependencies;
    return { alert, eventId, event, mails: await this.#mailsOf(alert), messagesMax };
  }

  async #eventOf(alert: SeenAlert, id: string): Promise<LowBalanceNotice['event']> {
    const { settings, secrets, log } = this.#dependencies;
    const { accountId, seenAtMs: atMs } = alert;
    const webhook = await settings.webhook(accountId);
    if (webhook === undefined) return undefined;
    const sealed = secrets.rebind(accountSecretId(accountId), id, webhook);
    if (sealed === undefined) {
      log.error({ accountId }, 'the secret of an account’s webhook does not open');
      return undefined;
    }
    const text = lowBalanceBody(id, { ...alert, atMs });
    const body = secrets.sealText(text, notificationBody(id));
    return { id, accountId, event: 'account.balance_low', url: webhook.url, body, ...sealed };
  }

  async #mailsOf(alert: SeenAlert): Promise<NewMail[]> {
    const { alerts, secrets, mails, pageUrl } = this.#dependencies;
    if (!mails) return [];
    const { accountId, seenAtMs: atMs } = alert;
    const textOf = (language: string | null) =>
      lowBalanceMail({ ...alert, atMs }, language, pageUrl);
    return ownersMails(await alerts.owners(accountId), { accountId, secrets, textOf });
  }

  /** Encrypts secrets with the current key, so that the operator can remove the previous one. */
  async #sealAnew(): Promise<void> {
    const { settings, secrets } = this.#dependencies;
    const old = await settings.listSealedWithOthers(secrets.keyId, RESEALED_MAX);
    for (const from of old) {
      const id = accountSecretId(from.accountId);
      const sealed = secrets.rebind(id, id, from);
      if (sealed !== undefined) await settings.reseal(from, { ...from, ...sealed });
    }
  }
}
