// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Stands in for the kernel module of NVIDIA's driver where that is installed, loaded, and unloaded in tests. Drives nothing.
 *
 * Like the real one it is found by the ids of a GPU, binds to it, tells its version and settings in /proc/driver/nvidia, and
 * cannot be unloaded while somebody has /dev/nvidiactl open or nvidia_uvm needs it.
 *
 * Copyright (c) 2026 The hpcai.gpu_cluster developers
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "version.h"

static int NVreg_RestrictProfilingToAdminUsers = 1;
module_param(NVreg_RestrictProfilingToAdminUsers, int, 0);

static atomic_t bound;

/* What nvidia_uvm needs of this module. */
int nvidia_lab_gpus(void);
int nvidia_lab_gpus(void)
{
	return atomic_read(&bound);
}
EXPORT_SYMBOL_GPL(nvidia_lab_gpus);

static int probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	atomic_inc(&bound);
	return 0;
}

static void remove(struct pci_dev *dev)
{
	atomic_dec(&bound);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver lab_driver = { .name = "nvidia", .id_table = ids, .probe = probe, .remove = remove };

static const struct file_operations control_operations = { .owner = THIS_MODULE, .open = nonseekable_open };
static struct miscdevice control = {
	.minor = MISC_DYNAMIC_MINOR, .name = "nvidiactl", .fops = &control_operations, .mode = 0666
};

static int version_show(struct seq_file *file, void *unused)
{
	seq_puts(file, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " LAB_VERSION "  Release Build  (lab@lab)\n");
	seq_puts(file, "GCC version:  " __VERSION__ "\n");
	return 0;
}

static int params_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "RmProfilingAdminOnly: %d\n", NVreg_RestrictProfilingToAdminUsers);
	return 0;
}

static int __init lab_init(void)
{
	struct proc_dir_entry *directory = proc_mkdir("driver/nvidia", NULL);
	int failed;

	if (!directory || !proc_create_single("version", 0444, directory, version_show) ||
	    !proc_create_single("params", 0444, directory, params_show)) {
		failed = -ENOMEM;
		goto no_proc;
	}
	failed = misc_register(&control);
	if (failed)
		goto no_proc;
	failed = pci_register_driver(&lab_driver);
	if (!failed)
		return 0;
	misc_deregister(&control);
no_proc:
	remove_proc_subtree("driver/nvidia", NULL);
	return failed;
}

static void __exit lab_exit(void)
{
	pci_unregister_driver(&lab_driver);
	misc_deregister(&control);
	remove_proc_subtree("driver/nvidia", NULL);
}

module_init(lab_init);
module_exit(lab_exit);
MODULE_DESCRIPTION("Stands in for NVIDIA's driver in tests");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(LAB_VERSION);
