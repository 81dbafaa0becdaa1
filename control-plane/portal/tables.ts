import type { Generated } from 'kysely';
import type { PaymentOutcome, StoredOrderState } from './orders/order-rules.ts';
import type { LinkPurpose, MemberSource } from './people/link-store.ts';
import type { Role } from './session/roles.ts';
import type { SignInMethod } from './session/session-store.ts';

declare module '@matting/database/database.ts' {
  interface Schema {
    /** Usage of a UTC day, by the ledger's entry of each job or the end of a correction. */
    usage_days: {
      account_id: string;
      day: number;
      api_key_id: string;
      outcome: 'succeeded' | 'failed' | 'corrected';
      format: string;
      images: number;
      credits: number;
    };
    playgrounds: {
      account_id: string;
      api_key_id: string;
      /** The start of the UTC day that `used` counts. */
      day_at: number;
      used: number;
    };
    orders: {
      id: string;
      account_id: string;
      price_list: 'credit' | 'image';
      credits: number;
      /** In the currency's smallest unit. */
      price: number;
      currency: string;
      /** 'pending' past expires_at means expired. */
      state: StoredOrderState;
      /** The part of the price that was paid back. */
      refunded: number;
      /** Credits that refunds took back, and that they could not take back (order-rules.ts). */
      revoked: number;
      unrevoked: number;
      /** The last refund that lacked credits. Null: `unrevoked` is 0. */
      unrevoked_at: number | null;
      created_at: number;
      expires_at: number;
      paid_at: number | null;
      paid_by: string | null;
      payment: string | null;
      cancelled_at: number | null;
      /** For transfers. Null: the order is older than references. */
      reference: string | null;
    };
    order_payments: {
      order_id: string;
      payment: string;
      amount: number;
      currency: string;
      outcome: PaymentOutcome;
      told_by: string;
      received_at: number;
    };
    order_refunds: {
      order_id: string;
      refund: string;
      amount: number;
      /** The credits of the amount, and those that were available to take back. */
      credits: number;
      revoked: number;
      told_by: string;
      created_at: number;
      /** Null: the refund waits for the payment. */
      applied_at: number | null;
    };
    users: {
      id: string;
      /** As typed. For people of an identity provider, their name there (providerName). */
      mail: string;
      /** Null: only an identity provider knows the person, and no mail finds them. */
      mail_key: string | null;
      /** Null: no password was set. */
      password_hash: string | null;
      /** Null: the browser's languages decide. */
      language: string | null;
      created_at: number;
      disabled_at: number | null;
      /**
       * When the person proved the mail, by a link that only its mail or the operator brought.
       * Null: somebody typed it.
       */
      proven_at: number | null;
      /** Counts updates that lock this row on clusters (takePerson). */
      turns: Generated<number>;
    };
    identities: {
      issuer: string;
      subject: string;
      user_id: string;
      created_at: number;
    };
    members: {
      account_id: string;
      user_id: string;
      role: Role;
      /** 'oidc': granted by a group of the identity provider, again at each sign-in. */
      source: MemberSource;
      created_at: number;
    };
    one_time_links: {
      id: string;
      token_hash: string;
      purpose: LinkPurpose;
      account_id: string;
      mail: string;
      role: Role;
      /** A mail, or `operator`. */
      created_by: string;
      created_at: number;
      expires_at: number;
      used_at: number | null;
      /** 1: only readers of that mail have the link. 0: another person has seen it, too. */
      proves_mail: number;
      made_by: string | null;
    };
    sessions: {
      id: string;
      /** SHA-256 of the cookie's value, in hexadecimal. */
      id_hash: string;
      user_id: string;
      account_id: string;
      method: SignInMethod;
      created_at: number;
      seen_at: number;
      expires_at: number;
      address: string;
      agent: string;
    };
    sign_in_throttles: {
      key_hash: string;
      window_start: number;
      failures: number;
    };
    balance_alerts: {
      account_id: string;
      threshold: number;
      created_at: number;
      /** Null: the threshold is armed. */
      told_at: number | null;
      /** `available` + `reserved` at the notice. */
      told_credits: number | null;
      told_event: string | null;
      /** When the quota last withheld a notice or a part of it. Null: nothing waits. */
      withheld_at: number | null;
      withheld_rest: string | null;
    };
    account_webhooks: {
      account_id: string;
      url: string;
      /** Encrypted, and bound to the account. */
      secret: Uint8Array;
      secret_key_id: string;
      created_at: number;
      test_event: string | null;
    };
    key_expiry_notices: {
      id: string;
      api_key_id: string;
      expires_at: number;
      withheld_at: number | null;
      withheld_rest: string | null;
    };
    ended_operator_sessions: {
      token_hash: string;
      expires_at: number;
    };
    /** Messages that an account sent, or an address got, on a UTC day: mails/messages.ts. */
    message_counts: {
      /** SHA-256 in hexadecimal, so that no table lists addresses. */
      key_hash: string;
      day_at: number;
      used: number;
      withheld: number;
      /** When the last test of an account's events was sent, to whichever address. */
      tested_at: number | null;
    };
  }
}
