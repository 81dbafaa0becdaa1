declare module '@matting/database/database.ts' {
  interface Schema {
    batches: {
      id: string;
      account_id: string;
      api_key_id: string;
      idempotency_key_hash: string;
      fingerprint: string;
      name: string | null;
      /** JSON: the fields that all items share. */
      request: string;
      items: number;
      next_item: number;
      created_at: number;
      /** Equal to created_at while the batch is open, for an index of open batches. */
      open_at: number | null;
      cancelled_at: number | null;
      finished_at: number | null;
      /** The window of its key's cap that counts all its items. Null: no cap. */
      cap_window_start: number | null;
      callback_url: string | null;
      /** Encrypted. Moves to the outbox at the batch's end. */
      callback_secret: Uint8Array | null;
      callback_secret_key_id: string | null;
    };
    batch_items: {
      batch_id: string;
      item: number;
      job_id: string;
      account_id: string;
      /** Set until the item is a job. */
      image_url: string | null;
      /** The image_url of an item that is a job, until the job succeeds (submit-again.ts). */
      again_url: string | null;
      reference: string | null;
    };
  }
}
