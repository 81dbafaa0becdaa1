/** What owners set for low balances, and what they see of it: behind the pages of settings. */
import { randomBytes, randomUUID } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import type { Actor } from '../../core/accounts/audit.ts';
import type { CallbackAddressCheck } from '../../core/fetching/guarded-post.ts';
import { type CallbackPolicy, wrongWithCallbackUrl } from '../../core/fetching/outgoing-url.ts';
import {
  accountSecretId,
  type CallbackSecrets,
  notificationBody,
} from '../../core/secrets/secret-box.ts';
import type { AlertSettingsStore, EventDelivery } from './alert-settings.ts';
import type { AlertStore } from './alert-store.ts';
import { thresholdsOf, webhookTestBody } from './balance-alerts.ts';
import type { OnWithheld } from './balance-watch.ts';

/** Between two test messages of an account. */
export const TEST_EVERY_MS = 10_000;

export type { EventDelivery };

export type AlertView = Awaited<ReturnType<ManageAlerts['view']>>;

/** An account and who acts in it. */
export interface AlertScope {
  readonly accountId: string;
  readonly accountName: string;
  readonly actor: Actor;
}

export interface WebhookChange {
  readonly url: string;
  /** Where there is one already, a new one is made only if this is so. */
  readonly newSecret: boolean;
}

export type WebhookOutcome =
  /** `secret`: a new one, to be shown this once; undefined: the old one stays. */
  | { readonly kind: 'set'; readonly secret: string | undefined }
  /** The URL is not one that events can go to. `detail` in English, as the API has it. */
  | { readonly kind: 'wrong-url'; readonly detail: string };

export interface ManageAlertsDependencies {
  readonly settings: AlertSettingsStore;
  readonly alerts: Pick<AlertStore, 'owners'>;
  readonly secrets: Pick<CallbackSecrets, 'seal' | 'sealText' | 'rebind' | 'keyIds'>;
  readonly addresses: Pick<CallbackAddressCheck, 'require'>;
  readonly policy: CallbackPolicy;
  readonly mails: boolean;
  /** Of an account a day. */
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
}

export class ManageAlerts {
  readonly #dependencies: ManageAlertsDependencies;

  constructor(dependencies: ManageAlertsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * `webhook`: null where there is none; unless it is `readable` a new secret is to be made.
   * `mailsUsedUp`: undefined where mails of today are left.
   */
  async view(accountId: string) {
    const { settings, alerts, secrets, mails, messagesMax } = this.#dependencies;
    const { thresholds, webhook, test, sentToday } = await settings.read(accountId);
    const owners = (await alerts.owners(accountId)).map(({ mail }) => mail);
    const readable = webhook !== null && secrets.keyIds.includes(webhook.secretKeyId);
    return {
      thresholds,
      webhook: webhook === null ? null : { url: webhook.url, readable },
      test,
      owners,
      mails,
      mailsUsedUp: sentToday.mails >= messagesMax ? messagesMax : undefined,
    };
  }

  /** False: they are not whole numbers of credits, or too many; nothing changed. */
  async setThresholds(scope: AlertScope, texts: readonly string[]): Promise<boolean> {
    const thresholds = thresholdsOf(texts);
    if (thresholds === undefined) return false;
    const { settings } = this.#dependencies;
    const { accountId } = scope;
    const by = changedBy(scope);
    await settings.setThresholds(accountId, thresholds, by);
    return true;
  }

  async setWebhook(scope: AlertScope, change: WebhookChange): Promise<WebhookOutcome> {
    const { settings, secrets } = this.#dependencies;
    const { accountId } = scope;
    const url = change.url.trim();
    const wrong = await this.#wrongWith(url, accountId);
    if (wrong !== undefined) return { kind: 'wrong-url', detail: wrong };
    const by = changedBy(scope);
    if (!change.newSecret && (await settings.setWebhook(accountId, { url }, by))) {
      return { kind: 'set', secret: undefined };
    }
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const sealed = secrets.seal(accountSecretId(accountId), secret);
    await settings.setWebhook(accountId, { url, ...sealed }, by);
    return { kind: 'set', secret };
  }

  async removeWebhook(scope: AlertScope): Promise<void> {
    const { settings } = this.#dependencies;
    const by = changedBy(scope);
    const { accountId } = scope;
    await settings.setWebhook(accountId, null, by);
  }

  /**
   * no-webhook: there is no address, or its secret does not open. used-up: the account has sent as
   * many events today as it may.
   */
  async sendTest(scope: AlertScope): Promise<'sent' | 'too-soon' | 'no-webhook' | 'used-up'> {
    const { settings, secrets, messagesMax, onWithheld } = this.#dependencies;
    const { accountId, accountName } = scope;
    const id = randomUUID();
    const by = changedBy(scope);
    const webhook = await settings.webhook(accountId);
    if (webhook === undefined) return 'no-webhook';
    const sealed = secrets.rebind(accountSecretId(accountId), id, webhook);
    if (sealed === undefined) return 'no-webhook';
    const text = webhookTestBody(id, { id: accountId, name: accountName }, Date.now());
    const body = secrets.sealText(text, notificationBody(id));
    const event = { id, accountId, event: 'account.webhook_test', url: webhook.url } as const;
    const bounds = { everyMs: TEST_EVERY_MS, messagesMax };
    const outcome = await settings.sendTest({ ...event, body, ...sealed }, bounds, by);
    if (typeof outcome === 'string') return outcome;
    onWithheld(accountId, outcome);
    return 'used-up';
  }

  async #wrongWith(url: string, accountId: string): Promise<string | undefined> {
    const { addresses, policy } = this.#dependencies;
    const wrong = wrongWithCallbackUrl(url, policy);
    if (wrong !== undefined) return wrong;
    try {
      await addresses.require(url, accountId);
      return undefined;
    } catch (error) {
      if (!(error instanceof ContractError) || error.code !== 'INVALID_CALLBACK') throw error;
      return error.fieldErrors[0]?.detail ?? error.message;
    }
  }
}

function changedBy({ actor }: AlertScope) {
  return { auditId: randomUUID(), actor };
}
