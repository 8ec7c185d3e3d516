// The VS Code extension: starts `canonc lsp` and passes messages on. Everything else is in the server.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

/** The program, with the workspace's folder in place of `${workspaceFolder}`. */
function program() {
  const path = vscode.workspace.getConfiguration("canonc").get("path");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  return path.replace("${workspaceFolder}", folder);
}

async function start() {
  const command = program();
  client = new LanguageClient(
    "canonc",
    "canonc",
    { command, args: ["lsp"] },
    {
      // Recipes are TOML; the server leaves the TOML of other programs alone.
      documentSelector: [
        { language: "canon" },
        { language: "canonc-lock" },
        { language: "toml" },
        { pattern: "**/*.toml" },
      ],
    },
  );
  try {
    await client.start();
  } catch (error) {
    const choice = await vscode.window.showErrorMessage(
      `canonc: \`${command} lsp\` does not start: ${error.message ?? error}. Build canonc with ` +
        "`make build`, and put target/release on PATH or into the setting canonc.path.",
      "Open the setting",
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "canonc.path");
    }
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.isRunning()) {
    await running.stop();
  }
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("canonc.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("canonc.path")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
