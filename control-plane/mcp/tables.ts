declare module '@matting/database/database.ts' {
  interface Schema {
    /** An address for one image, and the image once it came (upload-store.ts). */
    mcp_uploads: {
      account_id: string;
      /** From 0 to the account's bound of uploads less 1. */
      slot: number;
      id: string;
      /** Only this key can use the image. */
      api_key_id: string;
      /** SHA-256 of the address' secret part. */
      token_hash: string;
      created_at: number;
      /** Null: no image has come. */
      blob: string | null;
      /** JSON: its hash and header facts. Null also if an earlier release received the image. */
      known: string | null;
    };
  }
}
