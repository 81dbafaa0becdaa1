declare module '@matting/database/database.ts' {
  interface Schema {
    /** An address for one image, and the image once it came (upload-store.ts). */
    mcp_uploads: {
      account_id: string;
      slot: number;
      id: string;
      api_key_id: string;
      token_hash: string;
      created_at: number;
      blob: string | null;
      /**
       * JSON: the image's hash and header facts. Null also if an earlier release received the
       * image.
       */
      known: string | null;
    };
  }
}
